"""Both filters mean what the data set says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from kourou_demo.flights import Flight
from kourou_demo.late_arrivals import Counter, past_midnight


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
