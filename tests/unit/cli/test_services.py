"""`kourou shutdown`: which processes end, how long it waits, what it prints."""

from __future__ import annotations

import json

import pytest

from kourou.cli import services as shutdown
from kourou.cli.main import EXIT_BAD_USAGE, EXIT_FAILED, main
from kourou.cli.services import run_shutdown
from kourou.errors import BadRequest, TimedOut
from kourou_rigs.clock import ManualClock


class Pretender:
    """Plays a process; `needs_s` is how long it takes to end."""

    def __init__(self, pid: int, clock: ManualClock, needs_s: int = 0) -> None:
        self.pid = pid
        self.asked = self.closed = False
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + needs_s * 1_000

    def __enter__(self) -> Pretender:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def describe(self) -> str:
        return f"in /kourou/{self.pid}: -m kourou_broker"

    def ask_to_end(self) -> None:
        self.asked = True

    def wait_for_end(self, timeout_s: float) -> bool:
        left_ms = self._ends_ms - self._clock.monotonic_ms()
        self._clock.advance(max(0, min(left_ms, int(timeout_s * 1_000))))
        return self._clock.monotonic_ms() >= self._ends_ms


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> dict[str, list[Pretender]]:
    """What runs, by service."""
    running = {
        "broker": [Pretender(7, clock), Pretender(9, clock, 20)],
        "namesrv": [],
        "filter-server": [Pretender(11, clock)],
        "ha-replica": [Pretender(13, clock)],
    }
    monkeypatch.setattr(shutdown, "find_running", lambda service: running[service])
    return running


@pytest.mark.feature("F360")
def test_all_processes_are_signalled_before_the_wait(there, clock, capsys) -> None:
    assert run_shutdown("broker", every=True, clock=clock) == 0
    assert capsys.readouterr().out.splitlines() == [
        "broker (pid 7) is stopping",
        "broker (pid 9) is stopping",
        "broker (pid 7) has ended",
        "broker (pid 9) has ended",
    ]
    assert all(one.asked and one.closed for one in there["broker"])


@pytest.mark.feature("F360")
def test_of_several_none_is_stopped_unless_chosen(there, clock, capsys) -> None:
    assert main(["shutdown", "broker"]) == EXIT_BAD_USAGE
    assert main(["shutdown", "broker", "--all", "--pid", "7"]) == EXIT_BAD_USAGE
    assert not any(one.asked for one in there["broker"])
    assert all(one.closed for one in there["broker"])
    assert capsys.readouterr().err.splitlines() == [
        "kourou: 2 broker processes of yours run on this machine; nothing was stopped. "
        "Choose with --pid PID (repeatable), or stop them all with --all:",
        "  pid 7 in /kourou/7: -m kourou_broker",
        "  pid 9 in /kourou/9: -m kourou_broker",
        "kourou: --pid and --all cannot be combined",
    ]


def test_another_process_among_them_stops_none(there, clock) -> None:
    with pytest.raises(BadRequest, match="pid 8 is not a broker process of yours"):
        run_shutdown("broker", pids=[7, 8], clock=clock)
    assert not any(one.asked for one in there["broker"])
    assert all(one.closed for one in there["broker"])


def test_one_that_takes_too_long_is_named(there, clock, capsys) -> None:
    with pytest.raises(TimedOut, match=r"pid 9\) did not end within 10 s"):
        run_shutdown("broker", every=True, wait_s=10, clock=clock)
    assert clock.monotonic_ms() == 1_000 + 10_000
    assert "broker (pid 7) has ended" in capsys.readouterr().out


def test_of_the_pipeline_it_says_what_ends_it() -> None:
    with pytest.raises(BadRequest, match="'spark-etl' is not a service") as refused:
        run_shutdown("spark-etl")
    assert refused.value.hint == "stop the Spark pipeline with `kourou spark-etl stop`"
    with pytest.raises(BadRequest) as refused:
        run_shutdown("kitchen")
    assert not refused.value.hint


def test_the_command_line(there, capsys) -> None:
    assert main(["shutdown", "kitchen"]) == EXIT_BAD_USAGE
    assert main(["shutdown"]) == EXIT_BAD_USAGE
    assert main(["shutdown", "namesrv"]) == EXIT_FAILED
    assert "no namesrv process of yours runs" in capsys.readouterr().err
    assert main(["shutdown", "filter-server"]) == 0
    assert "filter-server (pid 11) has ended" in capsys.readouterr().out
    assert main(["shutdown", "ha-replica"]) == 0
    assert "ha-replica (pid 13) has ended" in capsys.readouterr().out
    assert main(["shutdown", "broker", "--pid", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"service": "broker", "pid": 7, "ended": True}
    assert [one.asked for one in there["broker"]] == [True, False]
