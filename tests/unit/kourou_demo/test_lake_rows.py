"""A row too many, one too few and a changed one are all seen."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kourou_demo.lake_rows import LakeCount, Row, compare, read_rows

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
