"""Which messages a query reads: its queues, where it starts and ends in them, and its partitions.

    subscribed, offsets_at   options to queues and offsets
    Narrowed                 conditions of a WHERE clause, applied to queues and offsets
    planned                  the range between two offsets, divided into Spark's partitions
    lost                     messages that a query should read but that no longer exist

Invariant: the partitions, and their order, depend on start, end and `minPartitions` alone. A batch
that is repeated after a crash has the same partitions, which exactly-once sinks rely on.

State: none; `Narrowed` collects the conditions of one query.
"""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from kourou.errors import BadRequest, Rejected, TopicNotFound
from kourou.model.limits import OFFSET_MAX
from kourou.model.names import is_system_topic
from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.offsets import OffsetSpan, QueueOffsets
from kourou_spark_etl.source.options import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    Edge,
    Place,
    ReadOptions,
)

_log = logging.getLogger("kourou.spark")


class DataLoss(Rejected):
    """Messages were deleted or damaged before the query read them.

    Do: Check retention and the broker's disk; failOnDataLoss=false skips the missing messages.
    """


def lost(message: str, *, fail: bool) -> None:
    """Raise DataLoss if `fail`, otherwise log a warning."""
    if fail:
        raise DataLoss(
            message, hint="to continue with the remaining messages, set failOnDataLoss=false"
        )
    _log.warning(
        "messages-lost: %(loss)s; reading continues with the remaining messages", {"loss": message}
    )


_DERIVED = "%"
"""The prefix of retry and dead-letter topics; a pattern matches them only if it has it as well."""


class OffsetFacts(Protocol):
    """Information about the topics of a cluster or of a store directory."""

    def topics(self) -> list[str]:
        """The names of all topics."""
        ...

    def spans(self, topics: Sequence[str], *, all_of: bool) -> dict[MessageQueue, OffsetSpan]:
        """The offset ranges of every readable queue of these topics. Raises TopicNotFound.

        With `all_of`, a broker that does not reply is an error; otherwise its queues are left out.
        """
        ...

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time; the end of the queue if there is none."""
        ...

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the offsets for the read's group."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def subscribed(
    options: ReadOptions, facts: OffsetFacts, *, all_of: bool
) -> dict[MessageQueue, OffsetSpan]:
    """The queues that the options select, with their offset ranges, in order.

    A pattern may match nothing. Raises TopicNotFound for a topic, BadRequest for a named queue that
    does not exist (only with `all_of`).
    """
    if options.pattern:
        wanted = re.compile(options.pattern)
        derived = options.pattern.startswith(_DERIVED)
        topics = [
            topic
            for topic in sorted(facts.topics())
            if wanted.fullmatch(topic)
            and not is_system_topic(topic)
            and (derived or not topic.startswith(_DERIVED))
        ]
    elif options.assigned:
        topics = sorted({queue.topic for queue in options.assigned})
    else:
        topics = list(options.topics)
    try:
        found = facts.spans(topics, all_of=all_of) if topics else {}
    except TopicNotFound as error:
        named = "assign" if options.assigned else "subscribe"
        raise TopicNotFound(
            f"the option {named!r} names a topic that does not exist: {error.message}",
            hint=error.hint,
        ) from error
    if not options.assigned:
        return dict(sorted(found.items()))
    missing = [queue for queue in options.assigned if queue not in found]
    if missing and all_of:
        raise BadRequest(
            f"the option 'assign' has {missing[0]!s}, which is not a readable queue",
            hint=f"readable queues: {', '.join(map(str, sorted(found)[:20]))}",
        )
    return {queue: found[queue] for queue in sorted(options.assigned) if queue in found}


def offsets_at(
    place: Place, spans: Mapping[MessageQueue, OffsetSpan], facts: OffsetFacts, *, option: str
) -> QueueOffsets:
    """The offset of every queue at a place. Raises BadRequest, which names the option."""
    match place:
        case Edge.EARLIEST:
            return QueueOffsets({queue: span.low for queue, span in spans.items()})
        case Edge.LATEST:
            return QueueOffsets({queue: span.high for queue, span in spans.items()})
        case AtTime(timestamp_ms):
            return QueueOffsets(
                {queue: facts.offset_by_time(queue, timestamp_ms) for queue in spans}
            )
        case AtTimes(times_ms):
            _check_named(times_ms, spans, f"{option}ByTimestamp")
            return QueueOffsets(
                {queue: facts.offset_by_time(queue, times_ms[queue]) for queue in spans}
            )
    _check_named(place, spans, option)
    edges = {EARLIEST: lambda span: span.low, LATEST: lambda span: span.high}
    return QueueOffsets(
        {
            queue: edges[place[queue]](span) if place[queue] < 0 else place[queue]
            for queue, span in spans.items()
        }
    )


def _check_named(
    named: Mapping[MessageQueue, int], spans: Mapping[MessageQueue, OffsetSpan], option: str
) -> None:
    missing = sorted(spans.keys() - named.keys())
    if missing:
        raise BadRequest(
            f"the option {option!r} has no entry for queue {missing[0]!s}",
            hint="name every queue; -2 means earliest, -1 latest",
        )
    strange = sorted(named.keys() - spans.keys())
    if strange:
        raise BadRequest(f"the option {option!r} has {strange[0]!s}, which is not read")


@dataclass
class QueueRange(InputPartition):
    """The messages of one queue from `begin` up to, not including, `end`.

    `fresh`: the start of the queue was not known, so messages missing there are not data loss.
    """

    topic: str
    broker: str
    queue_id: int
    begin: int
    end: int
    fresh: bool = False

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return MessageQueue(self.topic, self.broker, self.queue_id)

    def __str__(self) -> str:
        return f"{self.queue!s}@{self.begin} to {self.end}"


def planned(
    start: Mapping[MessageQueue, int],
    end: Mapping[MessageQueue, int],
    min_partitions: int | None = None,
) -> list[QueueRange]:
    """The partitions between `start` and `end`, queue by queue.

    A queue that `start` does not contain is read from its beginning. There is a partition for each
    queue with messages; if `min_partitions` is larger, long ranges are split into equal parts.
    """
    spans = [
        (queue, start.get(queue, 0), end[queue])
        for queue in sorted(end)
        if end[queue] > start.get(queue, 0)
    ]
    parts = _parts([high - low for _, low, high in spans], min_partitions or 0)
    ranges: list[QueueRange] = []
    for (queue, low, high), count in zip(spans, parts, strict=True):
        place = (queue.topic, queue.broker_name, queue.queue_id)
        fresh = queue not in start
        edges = [low + (high - low) * part // count for part in range(count + 1)]
        ranges += [QueueRange(*place, *span, fresh=fresh) for span in pairwise(edges)]
    return ranges


def _parts(lengths: list[int], wanted: int) -> list[int]:
    """The number of parts of each range; additional parts go to the longest ranges."""
    total = sum(lengths)
    wanted = min(wanted, total)
    parts = [max(1, length * wanted // total) for length in lengths]
    while sum(parts) < wanted:
        longest = max(range(len(parts)), key=lambda one: (lengths[one] / parts[one], -one))
        parts[longest] += 1
    return parts


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

    def narrow(
        self, start: QueueOffsets, end: QueueOffsets, facts: OffsetFacts
    ) -> tuple[QueueOffsets, QueueOffsets]:
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
        return QueueOffsets(starts), QueueOffsets(ends)
