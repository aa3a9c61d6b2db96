"""Batches that Spark had committed when a crash came, before it told of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kourou.errors import Corrupt
from kourou.model.topic import MessageQueue
from kourou_spark_etl.progress import OBSERVED, read_progress
from kourou_spark_etl.queries import LagSample, summed, unreported_batches
from kourou_spark_etl.read_model.read_model import RecordedBatch

ROWS = (3, 5, 2, 7)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query that has committed four batches; a fifth one has only begun."""
    folder = tmp_path / "checkpoint"
    (folder / "commits").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"id"}')
    log = tmp_path / "lake" / "incoming" / "_spark_metadata"
    log.mkdir(parents=True)
    for number, rows in enumerate((*ROWS, 4)):
        path = log.parent / f"part-{number}.parquet"
        pq.write_table(pa.table({"offset": range(rows)}), path)
        (log / str(number)).write_text(f'v1\n{{"path":"file://{path}","size":1}}')
        if number < len(ROWS):
            (folder / "commits" / str(number)).write_text("v1\n{}")
            (folder / "commits" / f".{number}.crc").touch()
    return folder


def found(checkpoint: Path, last: RecordedBatch | None) -> list[tuple[str, int, int]]:
    return [*unreported_batches(checkpoint, checkpoint.parent / "lake", last)]


def test_what_is_committed_behind_the_last_one_that_is_known(checkpoint: Path) -> None:
    every = [("id", number, rows) for number, rows in enumerate(ROWS)]
    assert found(checkpoint, None) == every
    assert found(checkpoint, RecordedBatch("q", "id", 1, 5, 0)) == every[2:]
    assert found(checkpoint, RecordedBatch("q", "id", 3, 7, 0)) == []
    assert found(checkpoint, RecordedBatch("q", "an older checkpoint", 9, 7, 0)) == every


def test_rows_are_counted_where_spark_has_put_its_log_together(checkpoint: Path) -> None:
    log = checkpoint.parent / "lake" / "incoming" / "_spark_metadata"
    lines = [(log / str(number)).read_text().splitlines()[1] for number in range(3)]
    (log / "2.compact").write_text("\n".join(["v1", *lines]))
    (log / "2").unlink()
    assert found(checkpoint, RecordedBatch("q", "id", 0, 3, 0)) == [
        ("id", 1, 5),
        ("id", 2, 2),
        ("id", 3, 7),
    ]


def test_files_that_were_merged_and_deleted_are_not_counted(checkpoint: Path) -> None:
    (checkpoint.parent / "lake" / "incoming" / "part-2.parquet").unlink()
    assert found(checkpoint, RecordedBatch("q", "id", 1, 5, 0)) == [("id", 2, 0), ("id", 3, 7)]


def test_a_query_that_has_not_begun_and_one_that_is_damaged(
    checkpoint: Path, tmp_path: Path
) -> None:
    assert found(tmp_path / "none", None) == []
    (checkpoint / "metadata").write_text("{")
    with pytest.raises(Corrupt, match="cannot be read"):
        found(checkpoint, None)


def test_queues_add_up_by_topic() -> None:
    queues = [
        (MessageQueue("t", "a", 0), 100, 90),
        (MessageQueue("t", "b", 0), 50, -1),  # not begun
        (MessageQueue("t", "b", 1), 10, 12),  # an answer that is older than the other
        (MessageQueue("%RETRY%g", "a", 0), 3, 3),
    ]
    assert summed("g", 7, queues) == [
        LagSample("g", "%RETRY%g", 7, 0, 3, 3),
        LagSample("g", "t", 7, 60, 160, 100),
    ]


# -- spark's reports as values ---------------------------------------------------------------------


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
REPORT = {
    "id": "5f2b",
    "runId": "x",
    "name": "flights",
    "timestamp": "2026-11-21T17:00:00.250Z",
    "batchId": 7,
    "batchDuration": 600,
    "numInputRows": 12,
    "inputRowsPerSecond": 1.5,
    "durationMs": {"addBatch": 400, "triggerExecution": 600},
    "eventTime": {"watermark": "2013-01-03T00:00:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 5, "memoryUsedBytes": 10, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 1, "memoryUsedBytes": 1, "customMetrics": {"a": 1}},
    ],
    "sources": [
        {
            "description": "KourouDataSource",
            "startOffset": {"t": {"b": {"0": 1}}},
            "endOffset": '{"t":{"b":{"0":13}}}',
            "latestOffset": None,
        }
    ],
    "sink": {"numOutputRows": -1},
    "observedMetrics": {OBSERVED: {"contexts": [None, TRACE, TRACE]}},
}


def test_a_report_is_read() -> None:
    done = read_progress(json.dumps(REPORT))
    assert (done.query, done.query_id, done.batch_id, done.rows) == ("flights", "5f2b", 7, 12)
    assert done.began_ms == 1_795_280_400_250
    assert done.took_ms == 600
    assert done.start_offsets == done.end_offsets.replace("13", "1") == '{"t":{"b":{"0":1}}}'
    assert (done.late_rows, done.state_rows, done.state_bytes) == (2, 6, 11)
    assert done.watermark == "2013-01-03T00:00:00.000Z"
    assert done.contexts == (TRACE,)


def test_a_report_of_little_is_enough() -> None:
    done = read_progress('{"id":"a","batchId":0,"timestamp":"2026-11-21T17:00:00Z"}')
    assert (done.query, done.rows, done.contexts, done.end_offsets) == ("a", 0, (), "")
