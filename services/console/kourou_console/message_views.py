"""A stored message as JSON: what every chapter of the API that shows messages answers.

A body that is UTF-8 is text, any other one base64; just one of the two is there, and neither of a
body that cannot be read, which says why. A body that was cut says so, and is cut between two
characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from kourou.client.received import ReceivedMessage
from kourou.model.limits import BODY_SIZE_BYTES_MAX
from kourou.model.message import RESERVED_PROPERTIES, Property
from kourou.model.names import RETRY_PREFIX
from kourou_console.message_bodies import Budget

PREVIEW_BYTES = 1_024
"""What a list shows of each body if nothing else is said."""

WHOLE_BYTES = 65_536
"""What is shown of a single message's body if nothing else is said."""

_DELAY = Property.DELAY.value
_KEYS = Property.KEYS.value
_ORIGIN_MESSAGE_ID = Property.ORIGIN_MESSAGE_ID.value
_REAL_TOPIC = Property.REAL_TOPIC.value
_TAGS = Property.TAGS.value
_UNIQ_KEY = Property.UNIQ_KEY.value

BodyMax = Annotated[int, msgspec.Meta(ge=0, le=BODY_SIZE_BYTES_MAX)]


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """One stored message. Times are epoch ms, sizes bytes."""

    #: The producer's id; of a producer that gave none, the offset id.
    id: str
    #: Names this stored copy by its broker and its place in the log.
    offset_id: str
    #: The offset id of the first stored copy; another one after a retry.
    origin_id: str
    #: The topic it was sent to; a message that is retried lies in another one.
    topic: str
    #: The topic it lies in.
    stored_topic: str
    broker: str
    queue: int
    offset: int
    #: Byte place in the broker's log.
    position: int
    tag: str | None
    keys: list[str]
    #: The application's own.
    properties: dict[str, str]
    #: Those that RocketMQ and Kourou reserve.
    system_properties: dict[str, str]
    flag: int
    born_ms: int
    stored_ms: int
    #: Where its sender was; without a port where the record has none: Kourou's own clients write
    #: the record before they know from which port it will leave.
    born_host: str
    size_bytes: int
    #: Decompressed; null where that cannot be done, or was not done to the end: of a compressed
    #: body that is cut.
    body_bytes: int | None
    reconsume_times: int
    delay_level: int | None
    body: str | None
    body_base64: str | None
    body_truncated: bool
    #: Why there is no body to show; null where there is one.
    body_error: str | None = None


def host_text(address: tuple[str, int]) -> str:
    """A host of a record for people; a port of 0 is none, and not shown."""
    host, port = address
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def view_of(
    message: ReceivedMessage, budget: Budget, body_max: int | None = None, *, whole: bool = False
) -> MessageView:
    """A message, with `body_max` bytes of its body at most (None: all), as the budget allows.

    `whole` asks no budget. Of a body that cannot be read it says why: everything else is shown.
    Raises Corrupt if the stored bytes are no message.
    """
    body = await budget.body(message, body_max, whole=whole)
    stored = message.stored()
    own: dict[str, str] = {}
    reserved: dict[str, str] = {}
    for name, value in stored.properties.items():
        (reserved if name in RESERVED_PROPERTIES else own)[name] = value
    level = reserved.get(_DELAY, "")
    queue, offset_id = message.queue, message.offset_message_id
    return MessageView(
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
) -> list[MessageView]:
    """All of them, in their order; a body that cannot be read is no reason to leave one out.

    Of those beyond the budget nothing is shown, as if `body_max` had been 0.
    """
    return [await view_of(message, budget, body_max) for message in messages]
