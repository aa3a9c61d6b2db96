"""The second act plays on the day with the most cancelled flights."""

from __future__ import annotations

import msgspec

from kourou_demo.flights import Event, Flight, as_event
from kourou_demo.worst_day import cancelled, departed, worst_day


def event(row: int, date: str, delay: int | None) -> Event:
    flight = Flight(row, f"{date}T10:00:00Z", date, "UA", 1, "EWR", "IAH", 1_400, None, delay)
    return as_event(flight, msgspec.json.encode(flight))


def test_it_is_the_day_with_the_most_cancelled_flights() -> None:
    events = [
        event(1, "2013-01-01", None),
        event(2, "2013-01-01", 5),
        event(3, "2013-02-08", None),
        event(4, "2013-02-08", None),
        event(5, "2013-02-08", 7),
        event(6, "2013-02-08", 0),
    ]
    date, flights = worst_day(events)
    assert date == "2013-02-08"
    assert [flight.row for flight in cancelled(flights)] == [3, 4]
    assert [flight.row for flight in departed(flights)] == [5, 6]


def test_of_equal_days_it_is_the_earliest() -> None:
    events = [event(1, "2013-01-02", None), event(2, "2013-01-01", None)]
    assert worst_day(events)[0] == "2013-01-01"
