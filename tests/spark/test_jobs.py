"""The jobs on small frames: no broker, no stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from kourou.model.names import TRACE_TOPIC
from kourou.protocol.record.message_trace import (
    Consumed,
    ConsumeStarted,
    ContextCode,
    Published,
    TraceKind,
    encode_record,
)
from kourou_spark_etl.jobs import (
    PARTITIONS,
    SAMPLE_DDL,
    backlog,
    by_size,
    dead_letters,
    flight_tables,
    flights,
    lake,
    latency,
)
from kourou_spark_etl.lake_files import compact, lake_paths, lake_state, read_lake
from kourou_spark_etl.read_model.read_model import FLIGHT_SUMS, bucket_of
from kourou_spark_etl.source.arrow_rows import COLUMNS, SCHEMA_DDL

EMPTY: dict[str, Any] = dict.fromkeys(COLUMNS)
T0 = 1_380_000_000_000


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000)  # noqa: DTZ006 - Spark takes it as local time


def frame(spark: Any, *rows: dict[str, Any]) -> Any:
    """Messages with the columns given; the rest is null."""
    return spark.createDataFrame(
        [tuple({**EMPTY, **row}.values()) for row in rows], schema=SCHEMA_DDL
    )


def told(table: Any) -> list[dict[str, Any]]:
    return sorted(table.toArrow().to_pylist(), key=str)


def properties(**of: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in of.items())


def test_a_message_lies_in_the_folder_of_its_day(spark: Any) -> None:
    late = datetime.fromisoformat("2013-12-31T23:59:59+00:00").timestamp() * 1000
    rows = lake(frame(spark, {"topic": "orders", "offset": 7, "timestamp": at(int(late))}))
    assert rows.columns == [*COLUMNS, "date"]
    (row,) = rows.collect()
    assert (row.topic, row.date, row.offset) == ("orders", date(2013, 12, 31), 7)


def test_dead_letters_are_counted_by_group_reason_and_origin(spark: Any) -> None:
    def letter(ms: int, group: str, **of: str) -> dict[str, Any]:
        return {
            "topic": f"%DLQ%{group}",
            "timestamp": at(T0 + ms),
            "properties": properties(**of),
        }

    messages = frame(
        spark,
        letter(5, "g", DLQ_REASON="too late", DLQ_ORIGIN_TOPIC="orders", RETRY_TOPIC="x"),
        letter(1, "g", DLQ_REASON="too late", DLQ_ORIGIN_TOPIC="orders"),
        letter(3, "g", RETRY_TOPIC="orders"),
        letter(4, "h", DLQ_REASON="r" * 600),
        {"topic": "orders", "timestamp": at(T0), "properties": ""},
    )
    names = ("consumer_group", "reason", "origin_topic", "letters", "first_ms", "last_ms")
    assert [tuple(row[name] for name in names) for row in told(dead_letters(messages))] == [
        ("g", "", "orders", 1, T0 + 3, T0 + 3),
        ("g", "too late", "orders", 2, T0 + 1, T0 + 5),
        ("h", "r" * 512, "", 1, T0 + 4, T0 + 4),
    ]


def test_latency_joins_a_consumption_with_its_message(spark: Any) -> None:
    def message(name: str, born_ms: int, stored_ms: int) -> dict[str, Any]:
        return {
            "topic": "orders",
            "message_id": name,
            "born_time": at(T0 + born_ms),
            "timestamp": at(T0 + stored_ms),
        }

    def trace(*records: Any) -> dict[str, Any]:
        body = "".join(map(encode_record, records)).encode()
        return {"topic": TRACE_TOPIC, "timestamp": at(T0 + 900), "value": body}

    sent = Published(T0, "r", "P", "orders", "A", "", "", "h:1", 3, 12, TraceKind.NORMAL, "", True)
    begun = ConsumeStarted(T0 + 150, "r", "G", "1", "A", 0, "")
    ended = Consumed("1", "A", 40, True, "", ContextCode.SUCCESS, T0 + 190, "G")
    stranger = ConsumeStarted(T0 + 150, "r", "G", "2", "elsewhere", 0, "")
    old = Consumed("1", "A", 40, True, "", ContextCode.SUCCESS)
    messages = frame(
        spark,
        message("A", 0, 100),
        message("B", 20, 10),
        trace(sent, begun),
        trace(ended, stranger, old),
        {"topic": TRACE_TOPIC, "timestamp": at(T0), "value": b"SubBefore\x01garbage\x02\xff"},
    )
    samples = latency(messages, wait="10 minutes").cache()
    found = {(row.stage, row.topic, row.consumer_group, row.ms) for row in samples.collect()}
    assert found == {
        ("store", "orders", "", 100),
        ("store", "orders", "", 0),  # a clock that is ahead
        ("send", "orders", "P", 12),
        ("wait", "orders", "G", 50),
        ("handle", "orders", "G", 40),
    }
    counts = {
        (row["stage"], row["bucket"]): (row["samples"], row["sum_ms"], row["max_ms"])
        for row in told(by_size(samples, window_ms=3_600_000))
    }
    assert counts == {
        ("store", bucket_of(100)): (1, 100, 100),
        ("store", 0): (1, 0, 0),
        ("send", bucket_of(12)): (1, 12, 12),
        ("wait", bucket_of(50)): (1, 50, 50),
        ("handle", bucket_of(40)): (1, 40, 40),
    }


def test_buckets_of_spark_are_those_of_python(spark: Any) -> None:
    sizes = [0, 1, 2, 3, 9, 10, 11, 99, 100, 101, 12_345, 86_400_000]
    samples = spark.createDataFrame(
        [("s", "t", "g", at(T0), size) for size in sizes],
        schema="stage STRING, topic STRING, consumer_group STRING, at TIMESTAMP, ms BIGINT",
    )
    rows = told(by_size(samples, window_ms=1_000))
    assert {row["bucket"] for row in rows} == {bucket_of(size) for size in sizes}
    assert {row["window_ms"] for row in rows} == {T0}


def test_a_backlog_tells_when_it_will_be_over(spark: Any) -> None:
    samples = spark.createDataFrame(
        [
            ("g", "t", 0, 100, 1_000, 900),
            ("g", "t", 10_000, 80, 1_010, 930),
            ("g", "t", 20_000, 90, 1_030, 940),
            ("h", "t", 0, 5, 5, 0),
            ("h", "t", 10_000, 0, 5, 5),
        ],
        schema=SAMPLE_DDL,
    )
    names = ("consumer_group", "at_ms", "in_per_s", "out_per_s", "growth_per_s", "drain_s")
    assert sorted(tuple(row[name] for name in names) for row in told(backlog(samples))) == [
        ("g", 0, None, None, None, None),
        ("g", 10_000, 1.0, 3.0, -2.0, 40.0),
        ("g", 20_000, 2.0, 1.0, 1.0, None),
        ("h", 0, None, None, None, None),
        ("h", 10_000, 0.0, 0.5, -0.5, 0.0),
    ]


def test_flights_add_up_as_pandas_adds_them_up(
    spark: Any, flights_of: Callable[[int], list[Any]]
) -> None:
    """The data set's own first days, counted by both."""
    events = flights_of(2_000)
    bodies = [{"value": event.body} for event in events]
    delays = (
        flights(
            frame(spark, *bodies, {"value": b"no flight"}, {"value": b"{}"}),
            flight_tables(spark),
            window="1 day",
            watermark="2 days",
        )
        .toArrow()
        .to_pandas()
    )
    raw = pd.DataFrame([json.loads(event.body) for event in events])
    for dimension, key in (
        ("carrier", raw["carrier"]),
        ("route", raw["origin"] + "-" + raw["dest"]),
        ("hour", raw["time"].str[11:13]),
    ):
        ours = delays[delays["dimension"] == dimension].groupby("name")[list(FLIGHT_SUMS)].sum()
        assert ours["flights"].to_dict() == raw.groupby(key).size().to_dict()
        for column, theirs in (
            ("departure_delay_min", "departure_delay"),
            ("arrival_delay_min", "arrival_delay"),
        ):
            wanted = raw.groupby(key)[theirs].sum().astype(int)
            assert ours[column].to_dict() == wanted.to_dict()
        cancelled = raw["departure_delay"].isna().groupby(key).sum()
        assert ours["cancelled"].to_dict() == cancelled.to_dict()
    labels = delays[delays["dimension"] == "carrier"].set_index("name")["label"]
    assert set(labels.loc[["UA"]]) == {"United Air Lines Inc."}
    assert delays["seats"].sum() > 0


def write_lake(spark: Any, folder: Path, batches: int) -> None:
    """A lake as the file sink makes it: a stream over files, one batch each."""
    source = folder.parent / "source"
    for number in range(batches):
        rows = [
            {
                "topic": f"%DLQ%g{row % 2}",
                "offset": number * 10 + row,
                "timestamp": at(T0),
                "value": b"v",
                "partition": 1,
                "position": 3,
                "reconsume_times": 0,
            }
            for row in range(4)
        ]
        frame(spark, *rows).coalesce(1).write.mode("append").parquet(str(source))
    (
        lake(
            spark.readStream.schema(SCHEMA_DDL).option("maxFilesPerTrigger", 1).parquet(str(source))
        )
        .writeStream.format("parquet")
        .partitionBy(*PARTITIONS)
        .option("path", f"file://{folder}/incoming")
        .option("checkpointLocation", str(folder.parent / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def test_a_lake_is_compacted_under_its_readers(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    write_lake(spark, folder, 3)
    assert len(lake_state(folder).incoming) == 6
    before = read_lake(spark, folder)
    rows = told(before)
    assert len(rows) == 12
    assert {row["topic"] for row in rows} == {"%DLQ%g0", "%DLQ%g1"}

    done = compact(folder, file_bytes=1 << 20, grace_ms=1_000, now_ms=T0)
    assert (done.merged, done.made, done.deleted) == (6, 2, 0)
    assert len(lake_paths(folder)) == 2
    assert told(read_lake(spark, folder)) == rows
    assert told(before) == rows, "who has looked before finds what it has found"

    done = compact(folder, file_bytes=1 << 20, grace_ms=1_000, now_ms=T0 + 1_000)
    assert (done.merged, done.made, done.deleted) == (0, 0, 6)
    assert told(read_lake(spark, folder)) == rows

    write_lake(spark, folder, 1)  # the query goes on, whatever became of its files
    assert len(told(read_lake(spark, folder))) == 16


def test_an_empty_lake_has_columns_and_no_rows(spark: Any, tmp_path: Path) -> None:
    nothing = read_lake(spark, tmp_path / "lake")
    assert nothing.columns == [*COLUMNS, "date"]
    assert nothing.count() == 0
