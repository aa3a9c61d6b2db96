"""Sends messages: one, a batch that is stored completely or not at all, or a transaction.

All requests share one client, so concurrent messages are sent to a broker in one frame, whichever
caller they come from. A transaction takes two calls: a half message, then its decision.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.client.producer.producer_core import Choice
from kourou.client.transactions.transaction import HalfMessage
from kourou.errors import BadRequest, MessageIllegal
from kourou.model.limits import BODY_SIZE_BYTES_MAX, CHECK_IMMUNITY_S_MAX, FRAME_RECORDS_MAX
from kourou.model.message import Message, SendResult
from kourou.model.transaction import TransactionState
from kourou_console.gateway import Gateway
from kourou_console.http.call import RequestContext
from kourou_console.http.idempotence import ABOUT, Idempotence, Named, named
from kourou_console.messages.envelopes import (
    DELAY_HEADERS,
    MESSAGE_HEADERS,
    BatchedMessage,
    Envelope,
    ToSend,
    body_of,
    message_of,
)
from kourou_console.messages.transactions import HalfMessages, half_of, id_of
from kourou_console.operation import BodyKind, Operation


class OfTopic(msgspec.Struct, frozen=True):
    """The topic."""

    topic: str


class SentMessage(msgspec.Struct, frozen=True):
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

    items: list[SentMessage]
    total: int
    truncated: bool
    as_of_ms: int


class BatchToSend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages of one topic that are stored together, in one queue."""

    messages: Annotated[
        list[BatchedMessage], msgspec.Meta(min_length=1, max_length=FRAME_RECORDS_MAX)
    ]
    order_key: str | None = None


def sent_message(gateway: Gateway, result: SendResult, *, delayed: bool = False) -> SentMessage:
    """The response form of a send result."""
    return SentMessage(
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


async def send_message(
    gateway: Gateway, parameters: OfTopic, content: bytes, call: RequestContext
) -> SentMessage:
    """Send one message."""
    message = message_of(content, call)
    name = named(gateway, call, "message", parameters.topic, content)
    if name is None:
        return await _send(gateway, parameters.topic, message, None)
    keys = gateway.part(Idempotence)

    async def work() -> SentMessage:
        await keys.check(parameters.topic, name.ids(1), [message.body])
        return await _send(gateway, parameters.topic, message, name)

    answer, replayed = await keys.once(name, work)
    return msgspec.structs.replace(answer, replayed=True) if replayed else answer


async def _send(gateway: Gateway, topic: str, message: ToSend, name: Named | None) -> SentMessage:
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
    return sent_message(gateway, result, delayed=bool(message.delay_level or message.delay))


async def send_batch(
    gateway: Gateway, parameters: OfTopic, batch: BatchToSend, call: RequestContext
) -> SentBatch:
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
        items = [sent_message(gateway, one) for one in results]
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


class TransactionParams(msgspec.Struct, frozen=True):
    """The topic. `check_immunity_s`: seconds before the broker's first check-back."""

    topic: str
    check_immunity_s: Annotated[int, msgspec.Meta(ge=1, le=CHECK_IMMUNITY_S_MAX)] | None = None


class StartedTransaction(msgspec.Struct, frozen=True):
    """A half message is stored; it is not delivered until it is committed."""

    transaction_id: str
    message_id: str
    topic: str
    broker: str
    replayed: bool
    as_of_ms: int


class EndedTransaction(msgspec.Struct, frozen=True):
    """The broker has heard it."""

    transaction_id: str
    message_id: str
    #: committed or rolled_back
    state: str
    as_of_ms: int


class OfTransaction(msgspec.Struct, frozen=True):
    """The transaction."""

    transaction_id: str


async def begin(
    gateway: Gateway, parameters: TransactionParams, content: bytes, call: RequestContext
) -> StartedTransaction:
    """Store a half message: the first call."""
    message = message_of(content, call)
    if message.delay is not None or message.delay_level:
        raise BadRequest("a message of a transaction cannot be delayed")
    gateway.part(HalfMessages)
    topic = parameters.topic
    name = named(gateway, call, f"half {parameters.check_immunity_s}", topic, content)

    keys = gateway.part(Idempotence)

    async def work() -> StartedTransaction:
        choice = Choice(order_key=message.order_key)
        if name is not None:
            choice = Choice(selector=keys.selector(name, message.order_key))
        half = HalfMessage(
            topic,
            message.body,
            message.tag,
            message.keys,
            message.properties,
            choice,
            check_immunity_s=parameters.check_immunity_s,
            message_id=None if name is None else name.ids(1)[0],
        )
        result = await gateway.client.prepare(half)
        return StartedTransaction(
            id_of(result),
            result.message_id,
            topic,
            result.queue.broker_name,
            False,
            gateway.clock.now_ms(),
        )

    if name is None:
        return await work()
    answer, replayed = await keys.once(name, work)
    return msgspec.structs.replace(answer, replayed=True) if replayed else answer


async def commit(gateway: Gateway, parameters: OfTransaction) -> EndedTransaction:
    """Commit: the message is delivered."""
    return await _end(gateway, parameters.transaction_id, TransactionState.COMMIT, "committed")


async def roll_back(gateway: Gateway, parameters: OfTransaction) -> EndedTransaction:
    """Roll back: the message is never delivered."""
    return await _end(gateway, parameters.transaction_id, TransactionState.ROLLBACK, "rolled_back")


async def _end(
    gateway: Gateway, given: str, state: TransactionState, word: str
) -> EndedTransaction:
    half = half_of(given)
    await gateway.part(HalfMessages).decide(half, state)
    return EndedTransaction(given, half.message_id, word, gateway.clock.now_ms())


_ABOUT_END = (
    " Repeating the request is allowed; the opposite decision afterwards is 409. After 503 or 504 "
    "the outcome is unknown: repeat the request."
)


_CHAPTER = "Producing"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/topics/{topic}/messages",
        "send_message",
        "Send one message. The body is the message's, with what belongs to it in headers; or, with "
        "Content-Type: application/json, an envelope that holds all of it. The response comes "
        "when the message is as durable as the broker is configured to guarantee.",
        _CHAPTER,
        send_message,
        SentMessage,
        parameters=OfTopic,
        body_kind=BodyKind.BYTES,
        json_body=Envelope,
        body_bytes_max=BODY_SIZE_BYTES_MAX,
        headers=(*MESSAGE_HEADERS, *DELAY_HEADERS, ABOUT),
        changes=True,
        call=True,
    ),
    Operation(
        "POST",
        "/v1/topics/{topic}/batches",
        "send_batch",
        "Send several messages as one: one queue, in this order, all stored or none.",
        _CHAPTER,
        send_batch,
        SentBatch,
        parameters=OfTopic,
        body=BatchToSend,
        body_kind=BodyKind.JSON,
        body_bytes_max=BODY_SIZE_BYTES_MAX,
        headers=(ABOUT,),
        changes=True,
        call=True,
    ),
    Operation(
        "POST",
        "/v1/topics/{topic}/transactions",
        "begin_transaction",
        "Store a half message, which is not delivered until it is committed. Keep the ID: any "
        "gateway of the same producer group accepts it. Until you decide, the gateway answers the "
        "broker's checks with unknown; after the maximum number of checks the transaction expires.",
        _CHAPTER,
        begin,
        StartedTransaction,
        parameters=TransactionParams,
        body_kind=BodyKind.BYTES,
        json_body=Envelope,
        body_bytes_max=BODY_SIZE_BYTES_MAX,
        headers=(*MESSAGE_HEADERS, ABOUT),
        status=201,
        changes=True,
        call=True,
    ),
    Operation(
        "POST",
        "/v1/transactions/{transaction_id}/commit",
        "commit_transaction",
        "Commit a half message: it is delivered." + _ABOUT_END,
        _CHAPTER,
        commit,
        EndedTransaction,
        parameters=OfTransaction,
        changes=True,
    ),
    Operation(
        "POST",
        "/v1/transactions/{transaction_id}/rollback",
        "roll_back_transaction",
        "Roll back a half message: it is dropped." + _ABOUT_END,
        _CHAPTER,
        roll_back,
        EndedTransaction,
        parameters=OfTransaction,
        changes=True,
    ),
)
