"""SIGTERM and SIGHUP end what runs as Ctrl-C does, once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kourou.cli import main as command_line
from kourou.cli.main import EndingSignals
from kourou.service.lifecycle import new_event_loop


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """As a process has them when it begins, whatever other tests left; then as they were."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_is_ended_as_by_ctrl_c_with_the_signals_own_code(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tidied = []

    def work(*_: object) -> int:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)  # a second one must not break this off
            tidied.append(True)
        return 0

    monkeypatch.setattr(command_line, "_run_command", work)
    assert command_line.main(["demo"]) == 128 + number
    assert tidied == [True]
    assert capsys.readouterr().err == "kourou: interrupted\n"
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("taken", [signal.default_int_handler, signal.SIG_IGN])
def test_a_loop_ends_its_tasks_in_order(taken: signal.Handlers) -> None:
    """Also in the background of a script, where Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, taken)
    ended = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with (
        EndingSignals() as ending,
        pytest.raises(KeyboardInterrupt),
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        runner.run(work())
    assert ended == [True]
    assert ending.exit_code(0) == 128 + signal.SIGTERM


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with EndingSignals() as ending:
        signal.raise_signal(signal.SIGHUP)
    assert ending.exit_code(7) == 7


def test_children_are_ended_and_folders_removed(tmp_path: os.PathLike[str]) -> None:
    """A real process with a child and a temporary folder, as the demo and the benchmarks have."""
    source = """
import sys, tempfile
from pathlib import Path
from kourou.cli import main as command_line
from kourou.service.processes import Children

def work(arguments, called_as):
    with tempfile.TemporaryDirectory() as name, Children(Path(name)) as children:
        child = children.start("child", ["sleep", "1000"], says_ready=False)
        print(child.pid, flush=True)
        child.wait_for_exit(1000)
    return 0

command_line._run_command = work
sys.exit(command_line.main(["demo"]))
"""
    running = subprocess.Popen(
        [sys.executable, "-c", source],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    child = int(running.stdout.readline())
    running.send_signal(signal.SIGTERM)
    _, error = running.communicate(timeout=60)
    assert (running.returncode, error) == (143, "kourou: interrupted\n")
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a path-like of pytest's
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
