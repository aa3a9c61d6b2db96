"""Transactions in two calls: a half message, then its decision."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.client.producer.producer_core import Choice
from kourou.client.transactions.transaction import HalfMessage
from kourou.errors import BadRequest
from kourou.model.limits import BODY_SIZE_BYTES_MAX, CHECK_IMMUNITY_S_MAX
from kourou.model.transaction import TransactionState
from kourou_console.call import Call
from kourou_console.envelopes import MESSAGE_HEADERS, Envelope, message_of
from kourou_console.gateway import Gateway
from kourou_console.halves import Halves, half_of, id_of
from kourou_console.idempotence import ABOUT, Idempotence, named
from kourou_console.operation import BodyKind, Operation

CHAPTER = "Producing"


class Beginning(msgspec.Struct, frozen=True):
    """The topic. `check_immunity_s`: seconds before the broker's first check-back."""

    topic: str
    check_immunity_s: Annotated[int, msgspec.Meta(ge=1, le=CHECK_IMMUNITY_S_MAX)] | None = None


class Begun(msgspec.Struct, frozen=True):
    """A half message is stored; it is not delivered until it is committed."""

    transaction_id: str
    message_id: str
    topic: str
    broker: str
    replayed: bool
    as_of_ms: int


class Ended(msgspec.Struct, frozen=True):
    """The broker has heard it."""

    transaction_id: str
    message_id: str
    #: committed or rolled_back
    state: str
    as_of_ms: int


class OfTransaction(msgspec.Struct, frozen=True):
    """The transaction."""

    transaction_id: str


async def begin(gateway: Gateway, parameters: Beginning, content: bytes, call: Call) -> Begun:
    """Store a half message: the first call."""
    message = message_of(content, call)
    if message.delay is not None or message.delay_level:
        raise BadRequest("a message of a transaction cannot be delayed")
    gateway.part(Halves)
    topic = parameters.topic
    name = named(gateway, call, f"half {parameters.check_immunity_s}", topic, content)

    keys = gateway.part(Idempotence)

    async def work() -> Begun:
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
        return Begun(
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


async def commit(gateway: Gateway, parameters: OfTransaction) -> Ended:
    """Commit: the message is delivered."""
    return await _end(gateway, parameters.transaction_id, TransactionState.COMMIT, "committed")


async def roll_back(gateway: Gateway, parameters: OfTransaction) -> Ended:
    """Roll back: the message is never delivered."""
    return await _end(gateway, parameters.transaction_id, TransactionState.ROLLBACK, "rolled_back")


async def _end(gateway: Gateway, given: str, state: TransactionState, word: str) -> Ended:
    half = half_of(given)
    await gateway.part(Halves).decide(half, state)
    return Ended(given, half.message_id, word, gateway.clock.now_ms())


_ABOUT_END = (
    " Repeating the request is allowed; the opposite decision afterwards is 409. After 503 or 504 "
    "the outcome is unknown: repeat the request."
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/topics/{topic}/transactions",
        "begin_transaction",
        "Store a half message, which is not delivered until it is committed. Keep the ID: any "
        "gateway of the same producer group accepts it. Until you decide, the gateway answers the "
        "broker's checks with unknown; after the maximum number of checks the transaction expires.",
        CHAPTER,
        begin,
        Begun,
        parameters=Beginning,
        body_kind=BodyKind.BYTES,
        json_body=Envelope,
        body_bytes_max=BODY_SIZE_BYTES_MAX,
        headers=(*MESSAGE_HEADERS, ABOUT),
        status=201,
        call=True,
    ),
    Operation(
        "POST",
        "/v1/transactions/{transaction_id}/commit",
        "commit_transaction",
        "Commit a half message: it is delivered." + _ABOUT_END,
        CHAPTER,
        commit,
        Ended,
        parameters=OfTransaction,
    ),
    Operation(
        "POST",
        "/v1/transactions/{transaction_id}/rollback",
        "roll_back_transaction",
        "Roll back a half message: it is dropped." + _ABOUT_END,
        CHAPTER,
        roll_back,
        Ended,
        parameters=OfTransaction,
    ),
)
