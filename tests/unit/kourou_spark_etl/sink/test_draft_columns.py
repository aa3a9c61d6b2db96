"""Drafts made of columns are those made of rows, byte for byte."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.producer.drafts import DraftDestination
from kourou.model.transaction import BatchMark
from kourou_spark_etl.sink import draft_columns
from kourou_spark_etl.sink.columns import rows_of
from kourou_spark_etl.sink.draft_columns import drafts_of, topics_of
from kourou_spark_etl.sink.messages import DraftBuilder, DraftTarget
from kourou_spark_etl.sink.options import write_options

MARK = BatchMark("q-1", 3, 1, "t1")
COLUMNS = {
    "value": pa.binary(),
    "topic": pa.string(),
    "key": pa.string(),
    "tags": pa.string(),
    "order_key": pa.string(),
    "queue": pa.int32(),
    "trace_parent": pa.string(),
}
WORDS = st.sampled_from([None, "", "red", "a b", " a  b ", "é", "ä\u2003b", "k-7", "x" * 300])
VALUES = {
    "value": st.binary(max_size=60),
    "topic": st.sampled_from([None, "", "out", "other"]),
    "key": WORDS,
    "tags": st.sampled_from([None, "", "red", "blue", "é"]),
    "order_key": WORDS,
    "queue": st.sampled_from([None, 0, 1]),
    "trace_parent": st.sampled_from([None, "", "00-1-2-00"]),
}
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.just("given"),
        "key": st.sampled_from(["given", " two keys "]),
        "queueBy": st.sampled_from(["turns", "key"]),
        "delayLevel": st.just("3"),
    },
)


def messages(
    mark: BatchMark | None, brokers: int = 2, v6: bool = False, **options: str
) -> DraftBuilder:
    told = write_options({"nameServer": "127.0.0.1:1", "topic": "out", **options}, {})
    made = DraftBuilder(told, mark, 1_700_000_000_000, random.Random(7))
    for topic, queues in (("out", 2), ("other", 3)):
        made._targets[topic] = [
            DraftTarget(
                f"broker-{broker}",
                f"127.0.0.1:{broker}",
                topic,
                queue,
                DraftDestination(topic.encode(), queue, "c" * broker, store_host_v6=v6),
            )
            for broker in range(brokers)
            for queue in range(queues)
        ]
    return made


def by_rows(
    batch: pa.RecordBatch, columns: tuple[str, ...], made: DraftBuilder
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for number, row in enumerate(rows_of(batch, columns)):
        target, draft = made.draft(row, made.topic_of(row, number), number)
        queue_target = target.topic, target.queue_id
        found.setdefault(target.broker_name, []).append((target.address, queue_target, draft))
    return found


def by_columns(
    batch: pa.RecordBatch, columns: tuple[str, ...], made: DraftBuilder
) -> dict[str, list[Any]] | None:
    if not topics_of(batch, columns, made):
        return None
    drafts = drafts_of(batch, columns, made)
    if drafts is None:
        return None
    return {
        one.broker_name: [
            (one.address, one.queue_targets[number], draft)
            for number, draft in zip(one.queue_target_of.tolist(), one.drafts, strict=True)
        ]
        for one in drafts
    }


def batch_of(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pa.RecordBatch:
    arrays = [pa.array([row[name] for row in rows], COLUMNS[name]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


@pytest.mark.feature("F243")
@given(
    st.data(),
    st.sets(st.sampled_from(sorted(set(COLUMNS) - {"value"}))),
    OPTIONS,
    st.sampled_from([None, MARK]),
    st.integers(1, 2),
    st.booleans(),
)
def test_columns_make_what_rows_make(data, drawn, options, mark, brokers, v6) -> None:
    columns = ("value", *sorted(drawn))
    row = st.fixed_dictionaries({name: VALUES[name] for name in columns})
    rows = data.draw(st.lists(row, min_size=1, max_size=4)) * 8
    skipped = data.draw(st.integers(0, 3))
    batch = batch_of(rows, columns).slice(skipped)
    one = messages(mark, brokers, v6, **options)
    other = messages(mark, brokers, v6, **options)
    made = by_columns(batch, columns, one)
    if batch.num_rows >= draft_columns.ROWS_MIN:
        assert made is not None
    if made is not None:
        assert made == by_rows(batch, columns, other)
        assert one.turn == other.turn
        assert one.unique_keys(1) == other.unique_keys(1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value", None),
        ("value", b"x" * 4_096),
        ("key", "a\x01b"),
        ("tags", "a\x02b"),
        ("tags", "a||b"),
        ("trace_parent", "\x01"),
        ("queue", 4),
        ("queue", -1),
        ("topic", "no topic!"),
        ("topic", "SCHEDULE_TOPIC_XXXX"),
        ("key", "x" * 32_700),
    ],
)
def test_a_row_that_needs_care_leaves_all_of_its_batch_to_rows(name: str, value: Any) -> None:
    columns = tuple(COLUMNS)
    usual = {
        "value": b"x",
        "topic": "out",
        "key": "k",
        "tags": "red",
        "order_key": None,
        "queue": 1,
        "trace_parent": "00-1",
    }
    rows = [dict(usual) for _ in range(20)]
    assert by_columns(batch_of(rows, columns), columns, messages(MARK)) is not None
    rows[9][name] = value
    made = messages(MARK)
    turn = made.turn
    assert by_columns(batch_of(rows, columns), columns, made) is None
    assert (made.turn, made.unique_keys(1)) == (turn, messages(MARK).unique_keys(1))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("properties", pa.array([[("a", "b")]] * 20, pa.map_(pa.string(), pa.string()))),
        ("delay_level", pa.array([None] * 19 + [3])),
        ("delay_ms", pa.array([1_000] * 20)),
    ],
)
def test_columns_that_are_read_row_by_row(name: str, values: pa.Array) -> None:
    body = pa.array([b"x"] * 20)
    batch = pa.RecordBatch.from_arrays([body, values], names=["value", name])
    assert by_columns(batch, ("value", name), messages(None)) is None
    nothing = pa.nulls(20, values.type)
    batch = pa.RecordBatch.from_arrays([body, nothing], names=["value", name])
    assert by_columns(batch, ("value", name), messages(None)) is not None


def test_brokers_whose_hosts_differ_in_width_take_rows() -> None:
    batch = batch_of([{"value": b"x"}] * 20, ("value",))
    made = messages(None)
    wide = made._targets["out"][0]
    made._targets["out"][0] = wide._replace(
        place=DraftDestination(b"out", 0, "", store_host_v6=True)
    )
    assert by_columns(batch, ("value",), made) is None


def test_bodies_may_be_text_or_empty() -> None:
    for values in (pa.array(["é", ""] * 10), pa.array([b""] * 20), pa.array([""] * 20)):
        batch = pa.RecordBatch.from_arrays([values], names=["value"])
        made = by_columns(batch, ("value",), messages(MARK))
        assert made == by_rows(batch, ("value",), messages(MARK))
