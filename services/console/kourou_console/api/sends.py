"""Sends messages: one, a batch that is stored completely or not at all, or a transaction.

All requests share one client, so concurrent messages are sent to a broker in one frame, whichever
caller they come from. A transaction takes two calls: a half message, then its decision.

A message in a request has one of two forms:

    raw       the body is the message's; Kourou-Tag, Kourou-Key (may be repeated),
              Kourou-Property-NAME, Kourou-Order-Key, Kourou-Delay-Ms, Kourou-Delay-Level
    envelope  Content-Type: application/json; {"body": …, "tag": …, "keys": […], …}

If an envelope's `body` is a JSON string, its text is stored; any other JSON value is stored as the
exact JSON that was sent; `body_base64` is for bytes. An unknown header that starts with Kourou- is
rejected: a misspelled header must not create a message without a tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import msgspec

from kourou.client.producer.producer_core import Choice
from kourou.client.transactions.transaction import HalfMessage
from kourou.errors import BadRequest, MessageIllegal
from kourou.model.limits import (
    BODY_SIZE_BYTES_MAX,
    CHECK_IMMUNITY_S_MAX,
    DELAY_LEVELS_MAX,
    FRAME_RECORDS_MAX,
)
from kourou.model.message import Message, SendResult
from kourou.model.transaction import TransactionState
from kourou_console.gateway import Gateway
from kourou_console.http.call import RequestContext
from kourou_console.http.idempotence import ABOUT, Idempotence, Named, named
from kourou_console.http.request_input import decoded_json
from kourou_console.messages.transactions import HalfMessages, half_of, id_of
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Producing")

TAG = "Kourou-Tag"
KEY = "Kourou-Key"
PROPERTY = "Kourou-Property-"
ORDER_KEY = "Kourou-Order-Key"
DELAY_MS = "Kourou-Delay-Ms"
DELAY_LEVEL = "Kourou-Delay-Level"
PREFIX = "kourou-"
_KNOWN = {TAG.lower(), KEY.lower(), ORDER_KEY.lower(), DELAY_MS.lower(), DELAY_LEVEL.lower()}

MESSAGE_HEADERS: tuple[tuple[str, str], ...] = (
    (TAG, "The tag of a raw body."),
    (KEY, "A key of a raw body, for searching (repeatable)."),
    ("Kourou-Property-NAME", "The property NAME of a raw body (repeatable)."),
    (ORDER_KEY, "Messages with the same order key keep their order."),
)
DELAY_HEADERS: tuple[tuple[str, str], ...] = (
    (DELAY_MS, "Delay the delivery of a raw body; one of the brokers' delay levels."),
    (DELAY_LEVEL, "The delay level, from 1; above the highest it is the highest."),
)

DelayMs = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
DelayLevel = Annotated[int, msgspec.Meta(ge=0, le=DELAY_LEVELS_MAX)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message in JSON. Give `body` or `body_base64`."""

    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    body_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    tag: str | None = None
    keys: list[str] = []
    properties: dict[str, str] = {}
    order_key: str | None = None
    delay_ms: DelayMs = 0
    delay_level: DelayLevel = 0


class BatchedMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of a batch: an envelope without what only the whole batch can have."""

    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    body_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    tag: str | None = None
    keys: list[str] = []
    properties: dict[str, str] = {}


class ToSend(msgspec.Struct, frozen=True):
    """A message, from either form."""

    body: bytes
    tag: str | None
    keys: list[str]
    properties: Mapping[str, str]
    order_key: str | None = None
    delay: timedelta | None = None
    delay_level: int = 0


_decode = msgspec.json.Decoder(Envelope).decode


def message_of(content: bytes, call: RequestContext) -> ToSend:
    """The message of a request. Raises BadRequest, which names the field or the header."""
    if call.content_type == "application/json":
        given = [name for name, _ in call.headers if name.lower().startswith(PREFIX)]
        if given:
            raise BadRequest(
                f"the header {given[0][:64]} is for a raw body",
                hint="in an envelope it is a field; or send another Content-Type",
            )
        one: Envelope = decoded_json(_decode, content)
        return ToSend(
            body_of(one.body, one.body_base64),
            one.tag,
            one.keys,
            one.properties,
            one.order_key,
            timedelta(milliseconds=one.delay_ms) if one.delay_ms else None,
            one.delay_level,
        )
    return _raw(content, call)


def _raw(content: bytes, call: RequestContext) -> ToSend:
    if not call.has_prefix(PREFIX):
        return ToSend(content, None, [], {})
    for name, value in call.headers:
        if not name.lower().startswith(PREFIX):
            continue
        if name.lower() not in _KNOWN and not name.lower().startswith(PROPERTY.lower()):
            raise BadRequest(f"unknown header {name[:64]}", hint=f"known: {', '.join(_names())}")
        if any("\udc80" <= char <= "\udcff" for char in value):
            raise BadRequest(f"the header {name[:64]} is not UTF-8 text")
    delay_ms = _number(call, DELAY_MS, 2**53)
    return ToSend(
        content,
        call.header(TAG),
        call.every(KEY),
        call.beginning(PROPERTY),
        call.header(ORDER_KEY),
        timedelta(milliseconds=delay_ms) if delay_ms else None,
        _number(call, DELAY_LEVEL, DELAY_LEVELS_MAX),
    )


def _names() -> list[str]:
    return [name for name, _ in (*MESSAGE_HEADERS, *DELAY_HEADERS)]


def _number(call: RequestContext, name: str, highest: int) -> int:
    text = call.header(name)
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= highest):
        raise BadRequest(
            f"the header {name} is {text[:40]!r}; it must be a whole number, 0 to {highest}"
        )
    return int(text)


def body_of(body: msgspec.Raw | msgspec.UnsetType, base64: bytes | msgspec.UnsetType) -> bytes:
    """The bytes of an envelope. Raises BadRequest if both fields or none is set."""
    if isinstance(base64, bytes):
        if not isinstance(body, msgspec.UnsetType):
            raise BadRequest("body and body_base64 are both given", hint="give one of them")
        return base64
    if isinstance(body, msgspec.UnsetType):
        raise BadRequest("the field body is missing", hint="body, or body_base64 for bytes")
    text = bytes(body)
    if text[:1] != b'"':
        return text
    found: str = decoded_json(msgspec.json.Decoder(str).decode, text)
    return found.encode()


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


@OPERATIONS.post(
    "/v1/topics/{topic}/messages",
    "send_message",
    needs=(),
    headers=(*MESSAGE_HEADERS, *DELAY_HEADERS, ABOUT),
    json_body=Envelope,
    body_bytes_max=BODY_SIZE_BYTES_MAX,
)
async def send_message(
    gateway: Gateway, parameters: OfTopic, content: bytes, call: RequestContext
) -> SentMessage:
    """Send one message. The body is the message's, with what belongs to it in headers; or, with
    Content-Type: application/json, an envelope that holds all of it. The response comes when the
    message is as durable as the broker is configured to guarantee.
    """
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


@OPERATIONS.post(
    "/v1/topics/{topic}/batches",
    "send_batch",
    needs=(),
    headers=(ABOUT,),
    body_bytes_max=BODY_SIZE_BYTES_MAX,
)
async def send_batch(
    gateway: Gateway, parameters: OfTopic, batch: BatchToSend, call: RequestContext
) -> SentBatch:
    """Send several messages as one: one queue, in this order, all stored or none."""
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


@OPERATIONS.post(
    "/v1/topics/{topic}/transactions",
    "begin_transaction",
    needs=(),
    status=201,
    headers=(*MESSAGE_HEADERS, ABOUT),
    json_body=Envelope,
    body_bytes_max=BODY_SIZE_BYTES_MAX,
)
async def begin(
    gateway: Gateway, parameters: TransactionParams, content: bytes, call: RequestContext
) -> StartedTransaction:
    """Store a half message, which is not delivered until it is committed. Keep the ID: any gateway
    of the same producer group accepts it. Until you decide, the gateway answers the broker's checks
    with unknown; after the maximum number of checks the transaction expires.
    """
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


@OPERATIONS.post("/v1/transactions/{transaction_id}/commit", "commit_transaction", needs=())
async def commit(gateway: Gateway, parameters: OfTransaction) -> EndedTransaction:
    """Commit a half message: it is delivered. Repeating the request is allowed; the opposite
    decision afterwards is 409. After 503 or 504 the outcome is unknown: repeat the request.
    """
    return await _end(gateway, parameters.transaction_id, TransactionState.COMMIT, "committed")


@OPERATIONS.post("/v1/transactions/{transaction_id}/rollback", "roll_back_transaction", needs=())
async def roll_back(gateway: Gateway, parameters: OfTransaction) -> EndedTransaction:
    """Roll back a half message: it is dropped. Repeating the request is allowed; the opposite
    decision afterwards is 409. After 503 or 504 the outcome is unknown: repeat the request.
    """
    return await _end(gateway, parameters.transaction_id, TransactionState.ROLLBACK, "rolled_back")


async def _end(
    gateway: Gateway, given: str, state: TransactionState, word: str
) -> EndedTransaction:
    half = half_of(given)
    await gateway.part(HalfMessages).decide(half, state)
    return EndedTransaction(given, half.message_id, word, gateway.clock.now_ms())
