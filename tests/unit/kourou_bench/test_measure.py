"""A work is warm when two windows in a row are alike and enough time has passed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kourou_bench.driving import Outcome
from kourou_bench.measure import pace_of, steady, warmed


def outcome(seconds: float, **values: float) -> Outcome:
    return Outcome(work="send", values=values, sent=0, stored=0, seconds=seconds)


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
