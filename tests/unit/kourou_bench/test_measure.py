"""Servers and driver stay while a work is warm and measured; wrong counts are refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou.errors import Unavailable
from kourou_bench.driving import DriverOptions, Outcome
from kourou_bench.measure import Scale, pace_of, prepared, steady, warmed
from kourou_bench.rows import Name, Work
from kourou_bench.systems import Processes, Running

SCRIPT = """
import sys
print("a warning of a JVM")
print("ready", flush=True)
for number, line in enumerate(sys.stdin):
    print("another")
    print('{"work": "send", "values": {"rate": %d}, "sent": 3, "stored": STORED, "seconds": 1.0,'
          ' "messages": 3}' % (100 + number), flush=True)
    if CODE:
        print("out of luck")
        sys.exit(CODE)
"""


class Puppet:
    """A system without servers, whose driver answers as it is told to."""

    name = Name.REDIS

    def __init__(self, *, stored: int = 3, code: int = 0) -> None:
        self.script = SCRIPT.replace("STORED", str(stored)).replace("CODE", str(code))
        self.options: DriverOptions | None = None
        self.folders: list[Path] = []
        self.started = 0

    def missing(self) -> str:
        return ""

    def cannot(self, work: Work) -> str:
        return ""

    def title(self) -> str:
        return "Puppet"

    def settings(self) -> dict[str, object]:
        return {}

    def address(self, port: int) -> str:
        return f"127.0.0.1:{port}"

    def driver(self, options: DriverOptions) -> list[str]:
        self.options = options
        self.started += 1
        return [sys.executable, "-c", self.script]

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        self.folders.append(folder.parent)
        yield Processes([])


def outcome(seconds: float, **values: float) -> Outcome:
    return Outcome(work="send", values=values, sent=0, stored=0, seconds=seconds)


def test_one_driver_is_warmed_up_and_measured_and_its_folder_is_gone_afterwards() -> None:
    puppet = Puppet()
    with prepared(puppet, Work("send", in_flight=9), Scale(warm_seconds=2)) as measured:
        assert measured.warm_up() == ""
        rounds = [measured.sample() for _ in range(3)]
    rates = [one.outcome.values["rate"] for one in rounds if one.outcome]
    assert rates == [102, 103, 104], "two windows of a second went before, in the same process"
    assert all(one.server_us == 0 and one.client_us is not None for one in rounds)
    assert puppet.started == 1
    assert puppet.options is not None
    assert puppet.options.in_flight == 9
    assert not puppet.folders[0].exists()


def test_counts_scale_with_the_backlog() -> None:
    scale = Scale(backlog=77)
    assert scale.options(Work("send"), "").messages == 0
    assert scale.options(Work("consume", messages=1_000_000), "").messages == 77
    few = scale.options(Work("delayed", messages=100_000, delay_level=3, pace=9), "")
    assert (few.messages, few.delay_level, few.pace) == (8, 3, 9)


def test_lost_messages_make_the_figures_void() -> None:
    with (
        prepared(Puppet(stored=2), Work("send"), Scale()) as measured,
        pytest.raises(Unavailable, match="2 messages are stored, 3 were sent"),
    ):
        measured.sample()


def test_a_driver_that_fails_is_quoted() -> None:
    with prepared(Puppet(code=3), Work("send"), Scale()) as measured:
        measured.sample()
        with pytest.raises(Unavailable, match=r"driver-send ended with 3: .*out of luck"):
            measured.sample()


@pytest.mark.parametrize(
    ("paces", "expected"),
    [
        ([], False),
        ([100], False),
        ([50, 100], False),
        ([100, 94], False),
        ([100, 95], True),
        ([95, 100], True),
        ([10, 100, 101], True),
        ([100, 101, 10], False),
    ],
)
def test_two_windows_in_a_row_must_be_alike(paces: Sequence[float], expected: bool) -> None:
    assert steady(paces) is expected


def test_warming_up_goes_on_until_windows_are_alike_and_long_enough() -> None:
    rates = iter([50.0, 80.0, 100.0, 101.0, 0.0])
    assert warmed(lambda: outcome(5, rate=next(rates)), 10, 1_000) == ""
    assert list(rates) == [0.0]
    rates = iter([100.0] * 5)
    assert warmed(lambda: outcome(5, rate=next(rates)), 20, 1_000) == ""
    assert list(rates) == [100.0], "steady from the first two, but twenty seconds are asked for"


def test_what_does_not_become_steady_says_so() -> None:
    now = [0.0]
    rates = iter([100.0, 10.0] * 20)

    def window() -> Outcome:
        now[0] += 5
        return outcome(5, rate=next(rates))

    assert warmed(window, 20, 120, lambda: now[0]) == "not steady after 120 s"
    assert len(list(rates)) == 40 - 24


def test_windows_are_compared_by_rate_or_by_time() -> None:
    assert pace_of(outcome(1, p50_ms=3, rate=7)) == 7
    assert pace_of(outcome(1, p50_ms=3, p99_ms=9)) == 3
    assert pace_of(outcome(1, mean_ms=2)) == 2
