"""Merging a lake's files, without Spark: files and a log as Spark writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kourou.errors import Corrupt
from kourou_spark_etl.lake_files import compact, lake_paths, lake_state, read_manifest
from kourou_spark_etl.source.arrow_rows import COLUMNS, arrow_schema

SCHEMA = arrow_schema(tuple(name for name in COLUMNS if name != "topic"))
DAY = "topic=%25DLQ%25g/date=2013-01-01"
NOW = 1_000_000


class Lake:
    """A lake that a file sink has written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches = 0
        self.log = folder / "incoming" / "_spark_metadata"
        self.log.mkdir(parents=True)

    def batch(self, *offsets: int, partition: str = DAY, old_times: bool = False) -> None:
        path = self.folder / "incoming" / partition / f"part-{self.batches}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {field.name: pa.nulls(len(offsets), field.type) for field in SCHEMA}
        columns["offset"] = pa.array(offsets, pa.int64())
        columns["timestamp"] = pa.array(
            [1_380_000_000_123_456] * len(offsets), SCHEMA.field("timestamp").type
        )
        pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=old_times)
        quoted = str(path).replace("%", "%25").replace(" ", "%20")
        self.commit({"path": f"file://{quoted}", "size": path.stat().st_size})

    def commit(self, entry: dict[str, object]) -> None:
        whole = {"isDir": False, "modificationTime": 1, "action": "add", **entry}
        text = "v1\n" + json.dumps(whole)
        (self.log / str(self.batches)).write_text(text)
        self.batches += 1

    def put_together(self, number: int) -> None:
        """What Spark does with its log now and then."""
        names = [self.log / str(each) for each in range(number + 1)]
        lines = [line for name in names for line in name.read_text().splitlines()[1:]]
        (self.log / f"{number}.compact").write_text("\n".join(["v1", *lines]))
        for name in names:
            name.unlink()

    def offsets(self) -> list[int]:
        found: list[int] = []
        for path in lake_paths(self.folder):
            found += pq.ParquetFile(path).read(columns=["offset"])["offset"].to_pylist()
        return sorted(found)

    def compact(self, now_ms: int = NOW, file_bytes: int = 1 << 20) -> tuple[int, int, int]:
        done = compact(self.folder, file_bytes=file_bytes, grace_ms=100, now_ms=now_ms)
        return done.merged, done.made, done.deleted


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "my lake")


def test_rows_stay_the_same_through_merging_and_deleting(lake: Lake) -> None:
    lake.batch(1, 2)
    lake.batch(3, old_times=True)
    lake.batch(4, partition="topic=a/date=2013-01-01")
    assert lake.compact() == (2, 1, 0)
    assert lake.offsets() == [1, 2, 3, 4]
    (merged,) = (path for path in lake_paths(lake.folder) if "merged" in path.parts)
    assert merged.parent.parent.name == "topic=%25DLQ%25g"
    table = pq.ParquetFile(merged).read()
    assert table.schema.equals(SCHEMA)
    assert {str(at) for at in table["timestamp"].to_pylist()} == {
        "2013-09-24 05:20:00.123456+00:00"
    }
    assert lake.compact(NOW + 99) == (0, 0, 0)
    assert lake.compact(NOW + 100) == (0, 0, 2)
    assert lake.offsets() == [1, 2, 3, 4]
    lake.batch(5)
    lake.put_together(3)
    assert lake.compact(NOW + 200) == (2, 1, 0)
    assert lake.compact(NOW + 300) == (0, 0, 2)
    assert lake.offsets() == [1, 2, 3, 4, 5]
    assert read_manifest(lake.folder).number == 2
    assert len(list((lake.folder / "manifests").iterdir())) == 1


def test_a_manifest_forgets_merged_files_that_are_deleted(lake: Lake) -> None:
    for number in range(6):
        lake.batch(2 * number)
        lake.batch(2 * number + 1)
        lake.compact(NOW + 100 * number)
        lake.compact(NOW + 100 * number + 99)
    replaced = read_manifest(lake.folder).replaced
    assert len([one for one in replaced if one.path.startswith("incoming/")]) == 12
    assert len([one for one in replaced if one.path.startswith("merged/")]) == 2
    assert lake.offsets() == list(range(12))


def test_large_files_are_left_alone(lake: Lake) -> None:
    lake.batch(1)
    lake.batch(2)
    size = lake_state(lake.folder).incoming[0].size
    assert lake.compact(file_bytes=2 * size) == (0, 0, 0)
    assert lake.compact(file_bytes=3 * size) == (2, 1, 0)


def test_what_is_not_committed_is_not_there(lake: Lake) -> None:
    lake.batch(1)
    lake.batch(2)
    (lake.log / "1").unlink()
    assert lake.offsets() == [1]
    assert lake.compact() == (0, 0, 0)


def test_a_crash_before_the_switch_changes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.batch(1)
    lake.batch(2)

    def dies(*_: object) -> None:
        raise OSError("the machine died")

    with monkeypatch.context() as patched:
        patched.setattr("kourou_spark_etl.lake_files._write_manifest", dies)
        with pytest.raises(OSError, match="the machine died"):
            lake.compact()
    assert lake.offsets() == [1, 2]
    (orphan,) = (lake.folder / "merged").rglob("*.parquet")
    os.utime(orphan, (1, 1))
    assert lake.compact() == (2, 1, 1)
    assert not orphan.exists()
    assert lake.offsets() == [1, 2]


def test_a_damaged_log_is_no_empty_lake(lake: Lake) -> None:
    lake.batch(1)
    (lake.log / "0").write_text("v2\n")
    with pytest.raises(Corrupt, match="only v1 is supported"):
        lake_state(lake.folder)
    (lake.log / "0").write_text("v1\n{nonsense")
    with pytest.raises(Corrupt, match="is damaged"):
        lake_state(lake.folder)
    (lake.log / "0").rename(lake.log / "4")
    with pytest.raises(Corrupt):
        lake_state(lake.folder)
    (lake.folder / "manifests").mkdir()
    (lake.folder / "manifests" / "000000000001.json").write_text("{")
    with pytest.raises(Corrupt, match="manifest"):
        read_manifest(lake.folder)
