"""Converts options to offsets: the queues of a read, and where it starts and ends in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from kourou.errors import BadRequest, TopicNotFound
from kourou.model.names import is_system_topic
from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.offsets import Offsets, Span
from kourou_spark_etl.source.options import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    Edge,
    Place,
    ReadOptions,
)

_DERIVED = "%"
"""The prefix of retry and dead-letter topics; a pattern matches them only if it has it as well."""


class Facts(Protocol):
    """Information about the topics of a cluster or of a store directory."""

    def topics(self) -> list[str]:
        """The names of all topics."""
        ...

    def spans(self, topics: Sequence[str], *, all_of: bool) -> dict[MessageQueue, Span]:
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


def subscribed(options: ReadOptions, facts: Facts, *, all_of: bool) -> dict[MessageQueue, Span]:
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
    place: Place, spans: Mapping[MessageQueue, Span], facts: Facts, *, option: str
) -> Offsets:
    """The offset of every queue at a place. Raises BadRequest, which names the option."""
    match place:
        case Edge.EARLIEST:
            return Offsets({queue: span.low for queue, span in spans.items()})
        case Edge.LATEST:
            return Offsets({queue: span.high for queue, span in spans.items()})
        case AtTime(timestamp_ms):
            return Offsets({queue: facts.offset_by_time(queue, timestamp_ms) for queue in spans})
        case AtTimes(times_ms):
            _check_named(times_ms, spans, f"{option}ByTimestamp")
            return Offsets({queue: facts.offset_by_time(queue, times_ms[queue]) for queue in spans})
    _check_named(place, spans, option)
    edges = {EARLIEST: lambda span: span.low, LATEST: lambda span: span.high}
    return Offsets(
        {
            queue: edges[place[queue]](span) if place[queue] < 0 else place[queue]
            for queue, span in spans.items()
        }
    )


def _check_named(
    named: Mapping[MessageQueue, int], spans: Mapping[MessageQueue, Span], option: str
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
