"""Consumer lag in one queue, in the form of all responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kourou.model.names import DLQ_PREFIX
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """A group's progress in one queue.

    `lag_ms` is the age of the oldest unconsumed message, 0 without one, null if not requested;
    `member` is the consumer that has the queue now.
    """

    topic: str
    broker: str
    queue: int
    end: int
    committed: int
    lag_messages: int
    lag_ms: int | None = None
    last_consumed_ms: int | None = None
    member: str | None = None


def lag_of(queue: MessageQueue, one: OffsetWrapper) -> dict[str, Any]:
    """The fields from a broker's statistics."""
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "end": one.broker_offset,
        "committed": one.consumer_offset,
        "lag_messages": max(0, one.broker_offset - one.consumer_offset),
        "last_consumed_ms": one.last_timestamp or None,
    }


def lag_messages(progress: Mapping[MessageQueue, OffsetWrapper]) -> int:
    """The lag in messages; 0 in a dead-letter topic, where the offset is an operator's mark."""
    return sum(
        max(0, one.broker_offset - one.consumer_offset)
        for queue, one in progress.items()
        if not queue.topic.startswith(DLQ_PREFIX)
    )
