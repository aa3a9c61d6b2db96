"""Load, recover, serve, drain, stop: in this order, with the right code at the end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kourou.errors import ConfigError, Corrupt, DiskFull, StoreFaulted
from kourou.service import lifecycle
from kourou.service.lifecycle import OPEN, STEPS, ExitCode, leave, run_service


class Sample:
    """Writes down what is asked of it; raises `trouble` at the step `at`."""

    name = "sample"

    def __init__(self, at: str = "", trouble: BaseException | None = None) -> None:
        self.steps: list[str] = []
        self._at = at
        self._trouble = trouble
        self.fail: Callable[[BaseException], None] = lambda error: None

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self._at and self._trouble is not None:
            raise self._trouble

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        self.fail = fail
        self._step("recover")

    async def serve(self) -> Mapping[str, str]:
        self._step("serve")
        return {"zmq": "tcp://127.0.0.1:1", "admin": "http://127.0.0.1:2"}

    async def drain(self) -> None:
        self._step("drain")

    async def stop(self) -> None:
        self._step("stop")

    def open_because(self) -> str:
        return ""


def live(service: Sample, **options: Path) -> int:
    """Run it, and ask it to stop as soon as it has begun."""
    return run_service(lambda: service, stop_when=lambda stop: stop(), **options)


def test_an_ordinary_life(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = Sample()
    ready = tmp_path / "ready.json"
    assert live(service, ready_file=ready) == ExitCode.OK
    assert service.steps == ["recover", "serve", "drain", "stop"]
    assert json.loads(ready.read_text()) == {
        "service": "sample",
        "pid": os.getpid(),
        "zmq": "tcp://127.0.0.1:1",
        "admin": "http://127.0.0.1:2",
    }
    assert [file.name for file in tmp_path.iterdir()] == ["ready.json"]
    out, err = capsys.readouterr()
    assert out == ("kourou sample is ready: zmq tcp://127.0.0.1:1, admin http://127.0.0.1:2\n")
    assert err == ""


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (ConfigError("no\nway", hint="try this"), ExitCode.USAGE),
        (Corrupt("acknowledged bytes are gone"), ExitCode.USAGE),
        (StoreFaulted("the disk failed"), ExitCode.FAULTED),
        (DiskFull("no room"), ExitCode.FAULTED),
    ],
)
@pytest.mark.parametrize("at", ["recover", "serve"])
def test_a_start_that_fails(
    at: str, trouble: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Sample(at, trouble)
    assert live(service) == code
    assert service.steps[-2:] == [at, "stop"]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kourou sample: ")
    assert err.count("\n") == 1


def test_a_service_that_decides_nothing_says_so_once_it_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Open(Sample):
        def open_because(self) -> str:
            return "there are no users" if self.steps[-1] == "serve" else "not asked yet"

    ready = tmp_path / "ready.json"
    assert live(Open(), ready_file=ready) == ExitCode.OK
    assert json.loads(ready.read_text())[OPEN] == "there are no users"
    said = [one for one in caplog.records if one.getMessage().startswith("access-open: ")]
    assert [(one.levelname, one.args) for one in said] == [
        ("WARNING", {"reason": "there are no users"})
    ]


class _Opening(Sample):
    """Is open for each of these reasons, one look each; then it ends."""

    def __init__(self, address: str, *reasons: str) -> None:
        super().__init__()
        self._address = address
        self._reasons = list(reasons)
        self.end: Callable[[], None] = lambda: None

    async def serve(self) -> Mapping[str, str]:
        return {"zmq": self._address, "admin": "http://127.0.0.1:2"}

    def open_because(self) -> str:
        reason = self._reasons.pop(0)
        if not self._reasons:
            self.end()
        return reason


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tcp://127.0.0.1:1", ["a", "b", "a"]),
        ("tcp://[::1]:1", ["a", "b", "a"]),
        ("tcp://0.0.0.0:1", ["a", "a", "b", "a"]),
        ("tcp://[::]:1", ["a", "a", "b", "a"]),
        ("http://192.0.2.7:1", ["a", "a", "b", "a"]),
    ],
)
def test_an_open_service_says_so_each_minute_on_a_network_and_else_when_that_changes(
    address: str, said: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert lifecycle.OPEN_WARNING_S == 60.0
    monkeypatch.setattr(lifecycle, "OPEN_WARNING_S", 0.0)
    service = _Opening(address, "", "a", "a", "b", "", "a", "")

    def stop_when(stop: Callable[[], None]) -> None:
        service.end = stop

    assert run_service(lambda: service, stop_when=stop_when) == ExitCode.OK
    opened = [one.args for one in caplog.records if one.getMessage().startswith("access-open: ")]
    assert opened == [{"reason": reason} for reason in said]


def test_a_bug_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert live(Sample("serve", ZeroDivisionError("x"))) == ExitCode.CRASHED
    assert "stopped by a bug: ZeroDivisionError: x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (StoreFaulted("the disk failed"), ExitCode.FAULTED),
        (Corrupt("odd bytes"), ExitCode.FAULTED),
        (AssertionError("an invariant"), ExitCode.CRASHED),
    ],
)
def test_a_failure_while_serving_skips_drain_and_stop(
    trouble: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Sample):
        async def serve(self) -> Mapping[str, str]:
            asyncio.get_running_loop().call_soon(self.fail, trouble)
            return await super().serve()

    service = Failing()
    assert run_service(lambda: service) == code
    assert service.steps == ["recover", "serve"]
    assert str(trouble) in capsys.readouterr().err


@pytest.mark.parametrize("at", ["drain", "stop"])
def test_a_disk_that_fails_at_the_end(at: str) -> None:
    assert live(Sample(at, StoreFaulted("the disk failed"))) == ExitCode.FAULTED


def test_a_drain_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "DRAIN_S_MAX", 0.01)

    class Slow(Sample):
        async def drain(self) -> None:
            await super().drain()
            await asyncio.Event().wait()

    service = Slow()
    assert live(service) == ExitCode.OK
    assert service.steps == ["recover", "serve", "drain", "stop"]


def test_a_stop_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "STOP_S_MAX", 0.01)

    class Slow(Sample):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    assert live(Slow()) == ExitCode.CRASHED


def steps_taken(caplog: pytest.LogCaptureFixture) -> set[tuple[str, str]]:
    return {
        (record.args["before"], record.args["after"])
        for record in caplog.records
        if record.msg.startswith("phase-changed: ") and isinstance(record.args, dict)
    }


def test_every_step_that_is_listed_can_be_taken_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reference page draws STEPS; here each of them is walked."""

    def refused() -> Sample:
        raise ConfigError("nonsense")

    class Failing(Sample):
        async def serve(self) -> Mapping[str, str]:
            asyncio.get_running_loop().call_soon(self.fail, StoreFaulted("the disk failed"))
            return {}

    caplog.set_level(logging.DEBUG, "kourou.service")
    run_service(refused)
    run_service(Failing)
    live(Sample())
    live(Sample("recover", DiskFull("no room")))
    live(Sample("recover", ZeroDivisionError("a bug")))
    live(Sample("serve", DiskFull("no room")))
    live(Sample("drain", StoreFaulted("the disk failed")))
    assert steps_taken(caplog) == {(a, b) for a, after in STEPS.items() for b in after}


def test_leaving_in_order_raises_and_after_a_crash_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SystemExit) as caught:
        leave(2)
    assert caught.value.code == 2
    ended: list[int] = []

    def end(code: int) -> None:
        ended.append(code)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(lifecycle.logging, "shutdown", lambda: None)
    for code in (70, 75):
        with pytest.raises(KeyboardInterrupt):
            leave(code)
    assert ended == [70, 75]


_SLOW_SERVICE = """
import asyncio, sys
from kourou.service.lifecycle import leave, run_service

class Service:
    name = "slow"
    async def recover(self, fail): pass
    async def serve(self): return {}
    async def drain(self):
        print("draining", flush=True)
        if sys.argv[1] == "hang":
            await asyncio.Event().wait()
    async def stop(self): print("stopped", flush=True)
    def open_because(self): return ""

leave(run_service(Service))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("manner", ["finish", "hang"])
def test_signals(number: int, manner: str) -> None:
    """One signal drains and stops; a second one ends it at once."""
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW_SERVICE, manner], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "kourou slow is ready: \n"
        process.send_signal(number)
        assert process.stdout.readline() == "draining\n"
        if manner == "hang":
            process.send_signal(number)
        rest = process.stdout.read()
    assert (process.returncode, rest) == ((70, "") if manner == "hang" else (0, "stopped\n"))
