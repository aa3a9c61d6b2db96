"""Spark's reports as values."""

from __future__ import annotations

import json

from kourou_spark_etl.progress import OBSERVED, read_progress

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
