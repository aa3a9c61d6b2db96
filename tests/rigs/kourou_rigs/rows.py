"""Converts a consumed message to a row of the Spark source."""

from __future__ import annotations

import datetime
from typing import Any

from kourou.client.consumer.received import ReceivedMessage
from kourou.model.message import Property


def row_of(message: ReceivedMessage) -> dict[str, Any]:
    """All columns of `format("kourou")`, with the Python types that Arrow produces."""
    stored = message.stored()
    properties = stored.properties
    return {
        "key": properties.get(Property.KEYS.value),
        "value": message.raw_body,
        "topic": message.queue.topic,
        "broker": message.queue.broker_name,
        "partition": message.queue_id,
        "offset": message.offset,
        "timestamp": _time(message.store_timestamp),
        "tags": message.tag,
        "properties": "\x02".join(f"{name}\x01{value}" for name, value in properties.items()),
        "position": message.position,
        "born_time": _time(message.born_timestamp),
        "message_id": message.message_id,
        "reconsume_times": stored.reconsume_times,
        "trace_parent": message.traceparent,
    }


def _time(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1_000, datetime.UTC)
