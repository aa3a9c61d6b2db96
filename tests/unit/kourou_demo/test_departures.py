"""Late flights depart when they come again, cancelled ones never; until somebody mends it."""

from __future__ import annotations

import pytest

from kourou.client.consumer.outcomes import RetryLater
from kourou_demo.departures import LATE_MIN, Ramp, is_late
from kourou_demo.flights import Flight


def flight(delay: int | None) -> Flight:
    return Flight(
        3, "2013-02-08T10:00:00Z", "2013-02-08", "UA", 1, "EWR", "IAH", 1_400, None, delay
    )


def test_a_flight_in_time_departs_at_once() -> None:
    ramp = Ramp()
    ramp.work(flight(LATE_MIN), 1)
    assert (ramp.departed, ramp.again) == ({3}, set())


def test_a_late_one_departs_at_its_second_attempt() -> None:
    ramp = Ramp()
    assert is_late(flight(LATE_MIN + 1))
    with pytest.raises(RetryLater, match="61 minutes late"):
        ramp.work(flight(LATE_MIN + 1), 1)
    assert not ramp.departed
    ramp.work(flight(LATE_MIN + 1), 2)
    assert (ramp.departed, ramp.again) == ({3}, {3})


def test_a_cancelled_one_fails_until_the_program_is_mended() -> None:
    ramp = Ramp()
    for attempt in (1, 2, 3):
        with pytest.raises(RetryLater, match="cancelled"):
            ramp.work(flight(None), attempt)
    ramp.rebooks = True
    ramp.work(flight(None), 1)
    assert (ramp.departed, ramp.rebooked) == (set(), {3})
