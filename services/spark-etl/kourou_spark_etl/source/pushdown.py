"""Filter pushdown: conditions on topic, broker, partition, offset and timestamp.

Spark offers filters to batch reads only. Filters on queues and offsets are applied exactly, so
Spark does not test them again; filters on the timestamp only narrow the range, and Spark tests
them, too.

State: none; `Narrowed` collects the conditions of one query.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.bounds import Facts
from kourou_spark_etl.source.offsets import OFFSET_MAX, Offsets

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)
_PART_OF: dict[str, Callable[[MessageQueue], Any]] = {
    "topic": lambda queue: queue.topic,
    "broker": lambda queue: queue.broker_name,
    "partition": lambda queue: queue.queue_id,
}


class Narrowed:
    """The range that a query's filters leave. `by_time`: brokers can look up offsets by time."""

    def __init__(self, *, by_time: bool) -> None:
        self._by_time = by_time
        self._queues: list[tuple[str, frozenset[Any]]] = []
        self._low, self._high = 0, OFFSET_MAX
        self._from_ms: int | None = None
        self._until_ms: int | None = None

    def take(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Apply the usable filters, and return those that Spark has to test."""
        for one in filters:
            if not self._takes(one):
                yield one

    def _takes(self, one: Filter) -> bool:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        value = getattr(one, "value", None)
        if len(column) != 1 or value is None:
            return False
        name = column[0]
        if name in _PART_OF and isinstance(one, EqualTo | In):
            values = value if isinstance(one, In) else (value,)
            self._queues.append((name, frozenset(values)))
            return True
        if name == "offset":
            return self._takes_offset(one, value)
        if name == "timestamp" and self._by_time and isinstance(value, datetime.datetime):
            self._look_at_time(one, value)
        return False

    def _takes_offset(self, one: Filter, value: int) -> bool:
        match one:
            case EqualTo():
                low, high = value, value + 1
            case GreaterThan():
                low, high = value + 1, OFFSET_MAX
            case GreaterThanOrEqual():
                low, high = value, OFFSET_MAX
            case LessThan():
                low, high = 0, value
            case LessThanOrEqual():
                low, high = 0, value + 1
            case _:
                return False
        self._low, self._high = max(self._low, low), min(self._high, high)
        return True

    def _look_at_time(self, one: Filter, value: datetime.datetime) -> None:
        if value.tzinfo is None:
            value = value.replace(tzinfo=datetime.UTC)
        at_ms = (value - _EPOCH) // _MS
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self._from_ms = max(self._from_ms or 0, at_ms)
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            # Timestamps are whole milliseconds, so messages from the next one on are too late.
            later = at_ms + 1
            self._until_ms = later if self._until_ms is None else min(self._until_ms, later)

    def narrow(self, start: Offsets, end: Offsets, facts: Facts) -> tuple[Offsets, Offsets]:
        """The remaining range between start and end."""
        starts: dict[MessageQueue, int] = {}
        ends: dict[MessageQueue, int] = {}
        for queue in end:
            if any(_PART_OF[name](queue) not in values for name, values in self._queues):
                continue
            low, high = max(start[queue], self._low), min(end[queue], self._high)
            if low < high and self._from_ms is not None:
                low = max(low, facts.offset_by_time(queue, max(self._from_ms, 0)))
            if low < high and self._until_ms is not None:
                high = min(high, facts.offset_by_time(queue, max(self._until_ms, 0)))
            starts[queue], ends[queue] = low, high
        return Offsets(starts), Offsets(ends)
