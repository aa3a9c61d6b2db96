"""Conditions that spare reading, and what Spark still has to test."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.offsets import OffsetSpan, QueueOffsets
from kourou_spark_etl.source.ranges import Narrowed

A, B = MessageQueue("a", "one", 0), MessageQueue("b", "two", 1)
START, END = QueueOffsets({A: 0, B: 10}), QueueOffsets({A: 100, B: 50})


class Clockwork:
    """A cluster where message n of every queue was stored at n seconds."""

    def topics(self) -> list[str]:
        return []

    def spans(self, topics: Sequence[str], *, all_of: bool) -> dict[MessageQueue, OffsetSpan]:
        return {}

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return min(-(-timestamp_ms // 1_000), END[queue])

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        del offsets

    def close(self) -> None:
        """Nothing is open."""


def left(filters: list[Filter], *, by_time: bool = True) -> tuple[dict[Any, Any], list[Filter]]:
    narrowed = Narrowed(by_time=by_time)
    back = list(narrowed.take(filters))
    start, end = narrowed.narrow(START, END, Clockwork())
    return {queue: (start[queue], end[queue]) for queue in end}, back


@pytest.mark.parametrize(
    ("one", "ranges"),
    [
        (EqualTo(("topic",), "a"), {A: (0, 100)}),
        (In(("topic",), ("b", "c")), {B: (10, 50)}),
        (EqualTo(("broker",), "two"), {B: (10, 50)}),
        (EqualTo(("partition",), 0), {A: (0, 100)}),
        (EqualTo(("offset",), 7), {A: (7, 8), B: (10, 8)}),
        (GreaterThan(("offset",), 20), {A: (21, 100), B: (21, 50)}),
        (GreaterThanOrEqual(("offset",), 20), {A: (20, 100), B: (20, 50)}),
        (LessThan(("offset",), 20), {A: (0, 20), B: (10, 20)}),
        (LessThanOrEqual(("offset",), 20), {A: (0, 21), B: (10, 21)}),
    ],
)
def test_queues_and_offsets_are_taken(one: Filter, ranges: object) -> None:
    assert left([one]) == (ranges, [])


def test_what_is_not_understood_goes_back() -> None:
    filters: list[Filter] = [
        IsNotNull(("topic",)),
        EqualTo(("value",), b"x"),
        EqualTo(("topic", "inner"), "a"),
        Not(EqualTo(("topic",), "a")),
        In(("offset",), (1, 2)),
    ]
    assert left(filters) == ({A: (0, 100), B: (10, 50)}, filters)


def test_times_bring_the_ends_nearer_and_are_tested_again() -> None:
    def at(seconds: float) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)

    filters: list[Filter] = [
        GreaterThan(("timestamp",), at(20.0005)),
        LessThanOrEqual(("timestamp",), at(30)),
    ]
    assert left(filters) == ({A: (20, 31), B: (20, 31)}, filters)
    naive: list[Filter] = [EqualTo(("timestamp",), at(20).replace(tzinfo=None))]
    assert left(naive) == ({A: (20, 21), B: (20, 21)}, naive)
    assert left(filters, by_time=False)[0] == {A: (0, 100), B: (10, 50)}
