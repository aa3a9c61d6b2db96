"""Early, late and twice are told apart."""

from __future__ import annotations

import pytest

from kourou_demo.flights import Flight
from kourou_demo.reminders import Phones, Reminder, plan


@pytest.mark.parametrize(("delay", "level"), [(-3, 1), (0, 1), (1, 2), (60, 2), (61, 3)])
def test_the_later_a_flight_the_higher_its_level(delay: int, level: int) -> None:
    flight = Flight(
        3, "2013-02-08T10:00:00Z", "2013-02-08", "UA", 1, "EWR", "IAH", 1_400, None, delay
    )
    assert plan([flight]) == [Reminder(3, level)]


def test_lateness_counts_from_the_end_of_the_delay() -> None:
    phones = Phones()
    phones.ring(Reminder(1, 1), 1_000)
    phones.ring(Reminder(2, 3), 3_017)
    assert (phones.early, phones.twice, phones.latest_ms) == (0, 0, 17)


def test_a_millisecond_too_soon_is_early() -> None:
    phones = Phones()
    phones.ring(Reminder(1, 2), 1_999)
    assert phones.early == 1


def test_what_comes_twice_is_counted_once() -> None:
    phones = Phones()
    for waited_ms in (1_000, 1_500):
        phones.ring(Reminder(1, 1), waited_ms)
    assert (len(phones.lateness_ms), phones.twice, phones.latest_ms) == (1, 1, 0)
