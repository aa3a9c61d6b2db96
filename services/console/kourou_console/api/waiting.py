"""Delayed messages and open transactions."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.client.consumer.received import ReceivedMessage
from kourou.model.limits import DELAY_LEVELS_MAX, MESSAGES_PER_PAGE_MAX, WAITING_READ_MAX
from kourou.model.message import Property
from kourou_console.gateway import Gateway
from kourou_console.lists import Missing, Name, cut
from kourou_console.messages import pending as waiting
from kourou_console.messages.bodies import Budget
from kourou_console.messages.transactions import id_of_waiting
from kourou_console.messages.views import PREVIEW_BYTES, BodyMax, MessageView, view_of
from kourou_console.operation import Operation

CHAPTER = "Pending messages"


class DelayedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of delayed messages."""

    topic: Name | None = None
    level: Annotated[int, msgspec.Meta(ge=1, le=DELAY_LEVELS_MAX)] | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_PER_PAGE_MAX)] = 50
    body_max: BodyMax = PREVIEW_BYTES


class DelayedView(msgspec.Struct, frozen=True, kw_only=True):
    """A delayed message; `topic` is its destination. `due_ms` null: unknown."""

    topic: str
    level: int
    due_ms: int | None
    message: MessageView


class LevelView(msgspec.Struct, frozen=True, kw_only=True):
    """How many wait at a level of a broker, of all topics."""

    broker: str
    level: int
    delay_ms: int | None
    waiting: int


class DelayedList(msgspec.Struct, frozen=True, kw_only=True):
    """Delayed messages, the next one first. `total` null: with a topic, where not all was read."""

    items: list[DelayedView]
    levels: list[LevelView]
    total: int | None
    truncated: bool
    as_of_ms: int
    missing: list[Missing] = []


class HalfQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of open transactions."""

    group: Name | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_PER_PAGE_MAX)] = 50
    body_max: BodyMax = PREVIEW_BYTES


class HalfView(msgspec.Struct, frozen=True, kw_only=True):
    """A half message of an open transaction.

    `id` is what commit and rollback here take; null: only its producer can end it, for it is of
    another producer group than this gateway's, or part of a batch.
    """

    id: str | None
    topic: str
    producer_group: str | None
    transaction_id: str
    broker: str
    half_offset: int
    age_ms: int
    #: The number of check-backs to the producer group.
    checks: int
    #: The time after its creation without check-backs.
    immunity_ms: int | None
    message: MessageView


class HalfList(msgspec.Struct, frozen=True, kw_only=True):
    """Open transactions, the oldest first. `total` null: not all were read."""

    items: list[HalfView]
    total: int | None
    truncated: bool
    as_of_ms: int
    missing: list[Missing] = []


async def list_delayed(gateway: Gateway, parameters: DelayedQuery) -> DelayedList:
    """Delayed messages."""
    # One topic may have few among many.
    most = parameters.count if parameters.topic is None else WAITING_READ_MAX
    found = await waiting.delayed(gateway, parameters.level, most)
    meant = [
        one for one in found.messages if parameters.topic is None or one.topic == parameters.topic
    ]
    shown, more = cut(meant, parameters.count)
    total: int | None = sum(one.waiting for one in found.levels)
    if parameters.topic is not None:
        total = None if found.truncated or found.missing else len(meant)
    budget = Budget()
    return DelayedList(
        items=[await _delayed(one, budget, parameters.body_max) for one in shown],
        levels=[
            LevelView(
                broker=one.broker, level=one.level, delay_ms=one.delay_ms, waiting=one.waiting
            )
            for one in found.levels
        ],
        total=total,
        truncated=more or found.truncated,
        as_of_ms=gateway.clock.now_ms(),
        missing=found.missing,
    )


async def _delayed(one: waiting.Delayed, budget: Budget, body_max: int) -> DelayedView:
    return DelayedView(
        topic=one.topic,
        level=one.level,
        due_ms=one.due_ms,
        message=await view_of(one.message, budget, body_max),
    )


async def list_transactions(gateway: Gateway, parameters: HalfQuery) -> HalfList:
    """Open transactions."""
    found = await waiting.halves(gateway)
    now_ms, group = gateway.clock.now_ms(), gateway.settings.producer_group
    meant = [
        half
        for half in found.messages
        if parameters.group is None or half.properties.get(Property.PGROUP) == parameters.group
    ]
    shown, more = cut(meant, parameters.count)
    budget = Budget()
    return HalfList(
        items=[await _half(half, budget, parameters.body_max, now_ms, group) for half in shown],
        total=None if found.truncated or found.missing else len(meant),
        truncated=more or found.truncated,
        as_of_ms=now_ms,
        missing=found.missing,
    )


async def _half(
    half: ReceivedMessage, budget: Budget, body_max: int, now_ms: int, group: str
) -> HalfView:
    said = half.properties
    seconds = _number(said.get(Property.CHECK_IMMUNITY_TIME))
    return HalfView(
        id=id_of_waiting(half, group),
        topic=said.get(Property.REAL_TOPIC, half.queue.topic),
        producer_group=said.get(Property.PGROUP),
        transaction_id=said.get(Property.TRANSACTION_ID) or half.message_id,
        broker=half.queue.broker_name,
        half_offset=half.offset,
        age_ms=max(0, now_ms - half.born_timestamp),
        checks=_number(said.get(Property.TRANSACTION_CHECK_TIMES)) or 0,
        immunity_ms=None if seconds is None else seconds * 1_000,
        message=await view_of(half, budget, body_max),
    )


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 12:
        return None
    return int(text)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/delayed",
        "list_delayed",
        "Delayed messages, the next one due first, and their number at each level. Of a topic, "
        "the first 2000 of each level are looked at.",
        CHAPTER,
        list_delayed,
        DelayedList,
        parameters=DelayedQuery,
    ),
    Operation(
        "GET",
        "/v1/transactions",
        "list_transactions",
        "Half messages of open transactions, oldest first. "
        "Those of this gateway's producer group have the `id` that commit and rollback take. Of "
        "each broker, the first 2000 are looked at.",
        CHAPTER,
        list_transactions,
        HalfList,
        parameters=HalfQuery,
    ),
)
