"""A stored message as JSON, for all chapters of the API that show messages.

A UTF-8 body is text, any other one base64; exactly one of the fields is set. For an unreadable body
both are null, and an error is set. A truncated body is marked, and is cut between two characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from kourou.client.consumer.received import ReceivedMessage
from kourou.model.limits import BODY_SIZE_BYTES_MAX
from kourou.model.message import RESERVED_PROPERTIES, Property
from kourou.model.names import RETRY_PREFIX
from kourou_console.messages.bodies import Budget

PREVIEW_BYTES = 1_024
"""The default number of shown bytes of each body in a list."""

WHOLE_BYTES = 65_536
"""The default number of shown bytes of a single message's body."""

_DELAY = Property.DELAY.value
_KEYS = Property.KEYS.value
_ORIGIN_MESSAGE_ID = Property.ORIGIN_MESSAGE_ID.value
_REAL_TOPIC = Property.REAL_TOPIC.value
_TAGS = Property.TAGS.value
_UNIQ_KEY = Property.UNIQ_KEY.value

BodyMax = Annotated[int, msgspec.Meta(ge=0, le=BODY_SIZE_BYTES_MAX)]


class StoredMessageView(msgspec.Struct, frozen=True, kw_only=True):
    """One stored message. Times are epoch ms, sizes bytes."""

    #: The producer's ID; if the producer set none, the offset ID.
    id: str
    #: Identifies this stored copy by its broker and its position in the log.
    offset_id: str
    #: The offset ID of the first stored copy; it differs after a retry.
    origin_id: str
    #: The topic it was sent to; a retried message is stored in another one.
    topic: str
    #: The topic it is stored in.
    stored_topic: str
    broker: str
    queue: int
    offset: int
    #: Byte position in the broker's log.
    position: int
    tag: str | None
    keys: list[str]
    #: Application properties.
    properties: dict[str, str]
    #: Properties reserved by RocketMQ and Kourou.
    system_properties: dict[str, str]
    flag: int
    born_ms: int
    stored_ms: int
    #: The sender's address, without a port if the record has none: Kourou's clients create the
    #: record before the port of the connection is known.
    born_host: str
    size_bytes: int
    #: The decompressed size; null if the body is unreadable, or was not completely decompressed
    #: because it is truncated.
    body_bytes: int | None
    reconsume_times: int
    delay_level: int | None
    body: str | None
    body_base64: str | None
    body_truncated: bool
    #: Why the body is unreadable; null if it is readable.
    body_error: str | None = None


def host_text(address: tuple[str, int]) -> str:
    """The host of a record as text; port 0 means none and is omitted."""
    host, port = address
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def view_of(
    message: ReceivedMessage, budget: Budget, body_max: int | None = None, *, whole: bool = False
) -> StoredMessageView:
    """A message with at most `body_max` bytes of its body (None: all), within the budget.

    `whole` ignores the budget. An unreadable body has an error; everything else is shown. Raises
    Corrupt if the stored bytes are not a message.
    """
    body = await budget.body(message, body_max, whole=whole)
    stored = message.stored()
    own: dict[str, str] = {}
    reserved: dict[str, str] = {}
    for name, value in stored.properties.items():
        (reserved if name in RESERVED_PROPERTIES else own)[name] = value
    level = reserved.get(_DELAY, "")
    queue, offset_id = message.queue, message.offset_message_id
    return StoredMessageView(
        id=reserved.get(_UNIQ_KEY) or offset_id,
        offset_id=offset_id,
        origin_id=reserved.get(_ORIGIN_MESSAGE_ID) or offset_id,
        topic=_topic_of(message, reserved),
        stored_topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        offset=message.offset,
        position=stored.position,
        tag=reserved.get(_TAGS),
        keys=reserved.get(_KEYS, "").split(),
        properties=own,
        system_properties=reserved,
        flag=stored.flag,
        born_ms=stored.born_timestamp,
        stored_ms=stored.store_timestamp,
        born_host=host_text(stored.born_host),
        size_bytes=stored.size,
        body_bytes=body.size_bytes,
        reconsume_times=max(stored.reconsume_times, message.attempt - 1),
        delay_level=int(level) if level.isascii() and level.isdigit() and len(level) < 6 else None,
        body=body.text,
        body_base64=body.encoded,
        body_truncated=body.truncated,
        body_error=body.error,
    )


def _topic_of(message: ReceivedMessage, reserved: Mapping[str, str]) -> str:
    topic = message.queue.topic
    if topic.startswith(RETRY_PREFIX):
        return message.topic
    return reserved.get(_REAL_TOPIC, topic)


async def views_of(
    messages: list[ReceivedMessage], budget: Budget, body_max: int
) -> list[StoredMessageView]:
    """All messages in their order, including those with unreadable bodies.

    Bodies beyond the budget are not shown, as if `body_max` were 0.
    """
    return [await view_of(message, budget, body_max) for message in messages]
