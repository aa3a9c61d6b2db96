"""Sends messages: one, or a batch that is stored completely or not at all.

All requests share one client, so concurrent messages are sent to a broker in one frame, whichever
caller they come from.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.errors import MessageIllegal
from kourou.model.limits import BODY_SIZE_BYTES_MAX, FRAME_RECORDS_MAX
from kourou.model.message import Message, SendResult
from kourou_console.call import Call
from kourou_console.envelopes import (
    DELAY_HEADERS,
    MESSAGE_HEADERS,
    BatchedMessage,
    Envelope,
    ToSend,
    body_of,
    message_of,
)
from kourou_console.gateway import Gateway
from kourou_console.idempotence import ABOUT, Idempotence, Named, named
from kourou_console.operation import BodyKind, Operation

CHAPTER = "Producing"


class OfTopic(msgspec.Struct, frozen=True):
    """The topic."""

    topic: str


class Sent(msgspec.Struct, frozen=True):
    """Where a message went, and what is promised about it."""

    #: SEND_OK, or a weaker result than requested: FLUSH_DISK_TIMEOUT and the like.
    status: str
    message_id: str
    #: The position in the log; null if the message is stored elsewhere first.
    offset_message_id: str | None
    topic: str
    broker: str
    queue_id: int
    #: The message's offset in its queue; null while it is delayed.
    offset: int | None
    #: Whether this is the response of an earlier request with the same Idempotency-Key.
    replayed: bool
    as_of_ms: int


class SentBatch(msgspec.Struct, frozen=True):
    """The messages of a batch in their order."""

    items: list[Sent]
    total: int
    truncated: bool
    as_of_ms: int


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages of one topic that are stored together, in one queue."""

    messages: Annotated[
        list[BatchedMessage], msgspec.Meta(min_length=1, max_length=FRAME_RECORDS_MAX)
    ]
    order_key: str | None = None


def sent(gateway: Gateway, result: SendResult, *, delayed: bool = False) -> Sent:
    """The response form of a send result."""
    return Sent(
        result.status.value,
        result.message_id,
        None if delayed else result.offset_message_id,
        result.queue.topic,
        result.queue.broker_name,
        result.queue.queue_id,
        None if delayed else result.offset,
        False,
        gateway.clock.now_ms(),
    )


async def send_message(gateway: Gateway, parameters: OfTopic, content: bytes, call: Call) -> Sent:
    """Send one message."""
    message = message_of(content, call)
    name = named(gateway, call, "message", parameters.topic, content)
    if name is None:
        return await _send(gateway, parameters.topic, message, None)
    keys = gateway.part(Idempotence)

    async def work() -> Sent:
        await keys.check(parameters.topic, name.ids(1), [message.body])
        return await _send(gateway, parameters.topic, message, name)

    answer, replayed = await keys.once(name, work)
    return msgspec.structs.replace(answer, replayed=True) if replayed else answer


async def _send(gateway: Gateway, topic: str, message: ToSend, name: Named | None) -> Sent:
    key = message.order_key
    selector = None if name is None else gateway.part(Idempotence).selector(name, key)
    result = await gateway.client.send(
        topic,
        message.body,
        tag=message.tag,
        keys=message.keys,
        properties=message.properties,
        order_key=key if selector is None else None,
        selector=selector,
        delay=message.delay,
        delay_level=message.delay_level,
        message_id=None if name is None else name.ids(1)[0],
    )
    return sent(gateway, result, delayed=bool(message.delay_level or message.delay))


async def send_batch(gateway: Gateway, parameters: OfTopic, batch: Batch, call: Call) -> SentBatch:
    """Send a batch, completely or not at all."""
    bodies = [body_of(one.body, one.body_base64) for one in batch.messages]
    if sum(map(len, bodies)) > BODY_SIZE_BYTES_MAX:
        raise MessageIllegal(f"the batch has more than {BODY_SIZE_BYTES_MAX} bytes")
    topic = parameters.topic
    messages = [
        Message(topic, body, one.tag, tuple(one.keys), one.properties)
        for one, body in zip(batch.messages, bodies, strict=True)
    ]

    async def work() -> SentBatch:
        ids: list[str] = []
        key, selector = batch.order_key, None
        if name is not None:
            ids = name.ids(len(messages))
            key, selector = None, keys.selector(name, key)
            await keys.check(topic, ids, bodies)
        results = await gateway.client.send_batch(
            topic, messages, order_key=key, selector=selector, message_ids=ids
        )
        items = [sent(gateway, one) for one in results]
        return SentBatch(items, len(items), False, gateway.clock.now_ms())

    keys = gateway.part(Idempotence)
    name = named(gateway, call, "batch", topic, msgspec.json.encode(batch))
    if name is None:
        return await work()
    answer, replayed = await keys.once(name, work)
    if not replayed:
        return answer
    items = [msgspec.structs.replace(one, replayed=True) for one in answer.items]
    return msgspec.structs.replace(answer, items=items)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/topics/{topic}/messages",
        "send_message",
        "Send one message. The body is the message's, with what belongs to it in headers; or, with "
        "Content-Type: application/json, an envelope that holds all of it. The response comes "
        "when the message is as durable as the broker is configured to guarantee.",
        CHAPTER,
        send_message,
        Sent,
        parameters=OfTopic,
        body_kind=BodyKind.BYTES,
        json_body=Envelope,
        body_bytes_max=BODY_SIZE_BYTES_MAX,
        headers=(*MESSAGE_HEADERS, *DELAY_HEADERS, ABOUT),
        call=True,
    ),
    Operation(
        "POST",
        "/v1/topics/{topic}/batches",
        "send_batch",
        "Send several messages as one: one queue, in this order, all stored or none.",
        CHAPTER,
        send_batch,
        SentBatch,
        parameters=OfTopic,
        body=Batch,
        body_kind=BodyKind.JSON,
        body_bytes_max=BODY_SIZE_BYTES_MAX,
        headers=(ABOUT,),
        call=True,
    ),
)
