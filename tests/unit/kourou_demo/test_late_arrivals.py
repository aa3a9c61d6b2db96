"""Both filters mean what the data set says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from kourou_demo.flights import Flight
from kourou_demo.late_arrivals import Counter, past_midnight
from kourou_demo.reminders import Phones, Reminder, plan


def flight(row: int, delay: int | None, due: str) -> Flight:
    return Flight(
        row,
        "2013-02-08T10:00:00Z",
        "2013-02-08",
        "UA",
        1,
        "EWR",
        "IAH",
        1_400,
        None,
        None,
        delay,
        None,
        due,
    )


@dataclass
class Seen:
    """What the filter looks at of a message."""

    json: Any


@pytest.mark.parametrize(
    ("delay", "due", "passes"),
    [
        (None, "23:00", False),
        (121, "21:59", True),
        (121, "21:58", False),
        (120, "23:00", False),
        (-30, "00:10", False),
        (300, "01:15", False),
        (180, "21:00", True),
    ],
)
def test_past_midnight_is_computed_from_the_body(delay: int | None, due: str, passes: bool) -> None:
    body = msgspec.json.decode(msgspec.json.encode(flight(1, delay, due)))
    assert past_midnight(Seen(body)) is passes


def test_a_desk_counts_flights_once_and_names_what_is_wrong() -> None:
    counter = Counter()
    for row in (1, 2, 2):
        counter.take(flight(row, 130, "23:00"), 10)
    assert counter.complaint(frozenset({1, 2})) == ""
    wrong = "a filter missed 2 flights and passed 1 wrong ones"
    assert counter.complaint(frozenset({1, 3, 4})) == wrong


# -- early, late and twice are told apart ----------------------------------------------------------


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
