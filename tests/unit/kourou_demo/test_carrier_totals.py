"""What pandas adds up, from the files of the data set; and any difference is seen."""

from __future__ import annotations

import zipfile
from copy import deepcopy
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kourou_demo.carrier_totals import SUMS, add_up, agreeing, by_pandas
from kourou_demo.lake_rows import LakeCount, Row, compare, read_rows

FLIGHTS = """\
carrier,origin,tailnum,dep_delay,arr_delay,time_hour
UA,EWR,N1,5,16,2013-01-01T10:00:00Z
UA,EWR,N1,-3,15,2013-01-01T11:00:00Z
UA,JFK,N9,NA,NA,2013-01-01T10:00:00Z
AA,JFK,NA,7,NA,2013-01-01T10:00:00Z
"""
PLANES = "tailnum,seats\nN1,100\nN1,999\n"
WEATHER = """\
origin,time_hour,precip
EWR,2013-01-01T10:00:00Z,0.5
EWR,2013-01-01T10:00:00Z,0
EWR,2013-01-01T11:00:00Z,0
JFK,2013-01-01T10:00:00Z,NA
"""


def figures(*values: int) -> dict[str, int]:
    return dict(zip(SUMS, values, strict=True))


WANTED = {
    "UA": figures(3, 1, 2, 2, 1, 2, 31, 200, 1),
    "AA": figures(1, 0, 1, 0, 0, 7, 0, 0, 0),
}


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    (tmp_path / "planes.csv").write_text(PLANES)
    (tmp_path / "weather.csv").write_text(WEATHER)
    return tmp_path


def test_pandas_adds_up_every_flight(data_set: Path) -> None:
    assert by_pandas(data_set) == WANTED


def test_pandas_adds_up_some_flights(data_set: Path) -> None:
    assert by_pandas(data_set, [3, 0]) == {
        "UA": figures(1, 0, 1, 1, 1, 5, 16, 100, 1),
        "AA": WANTED["AA"],
    }


def test_rows_of_days_become_totals() -> None:
    one = {"name": "UA", "label": "United", "window_ms": 1, **figures(1, 2, 3, 4, 5, 6, 7, 8, 9)}
    other = {"name": "UA", "label": "United", "window_ms": 2, **figures(*[10] * 9)}
    apart = {"name": "AA", "label": "American", "window_ms": 1, **figures(*[1] * 9)}
    assert add_up([one, apart, other]) == {
        "UA": figures(11, 12, 13, 14, 15, 16, 17, 18, 19),
        "AA": figures(*[1] * 9),
    }


def test_every_difference_counts() -> None:
    assert agreeing(WANTED, WANTED) == (18, 18)
    for carrier in WANTED:
        for name in SUMS:
            wrong = deepcopy(WANTED)
            wrong[carrier][name] += 1
            assert agreeing(wrong, WANTED) == agreeing(WANTED, wrong) == (17, 18)
    fewer = {"UA": WANTED["UA"]}
    assert agreeing(fewer, WANTED) == agreeing(WANTED, fewer) == (9, 18)
    assert agreeing({}, {}) == (0, 0)


# -- A row too many, one too few and a changed one are all seen ------------------------------------


SENT = {"a": b"1", "b": b"2", "c": b"3"}


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([("a", b"1"), ("b", b"2"), ("c", b"3")], LakeCount(3, 0, 0, 0)),
        ([("c", b"3"), ("a", b"1"), ("b", b"2"), ("a", b"1")], LakeCount(4, 1, 0, 0)),
        ([("a", b"1"), ("b", b"2")], LakeCount(2, 0, 1, 0)),
        ([("a", b"1"), ("b", b"2"), ("b", b"2")], LakeCount(3, 1, 1, 0)),
        ([("a", b"1"), ("b", b"2"), ("c", b"4")], LakeCount(3, 0, 0, 1)),
        ([("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"1")], LakeCount(4, 0, 0, 1)),
        ([("a", b"1"), ("b", b"2"), ("c", b"3"), ("c", b"4")], LakeCount(4, 1, 0, 1)),
        ([], LakeCount(0, 0, 3, 0)),
    ],
)
def test_rows_are_held_against_what_was_sent(rows: list[Row], count: LakeCount) -> None:
    assert compare(SENT, rows) == count


def test_rows_are_read_from_all_files(tmp_path: Path) -> None:
    """The folder's own columns, which tell the same, do not get in the way."""
    folder = tmp_path / "topic=flights" / "date=2013-01-01"
    folder.mkdir(parents=True)
    paths = [folder / f"{number}.parquet" for number in range(2)]
    for number, path in enumerate(paths):
        ids = [f"{number}-{row}" for row in range(3)]
        table = pa.table({"value": [one.encode() for one in ids], "n": ids, "message_id": ids})
        pq.write_table(table, path)
    assert sorted(read_rows(paths)) == [
        (f"{number}-{row}", f"{number}-{row}".encode()) for number in range(2) for row in range(3)
    ]
