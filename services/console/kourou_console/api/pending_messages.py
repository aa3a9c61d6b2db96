"""Delayed messages, and half messages of open transactions, as stored at brokers.

    delayed     SCHEDULE_TOPIC_XXXX, a queue for each level: from the broker's delivery offset
                (request 45) to the end; due is store time and the level's delay
    halves      RMQ_SYS_TRANS_HALF_TOPIC from the broker's own offset (of its group) on, without
                those that an op message names, and without earlier copies of the same half message

Reading is limited (WAITING_READ_MAX of a queue), and the response says if there is more. A message
that is being delivered at this moment may be included or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from kourou.client.admin.messages import Reading
from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.client.consumer.received import ReceivedMessage
from kourou.errors import KourouError, TopicNotFound
from kourou.model.limits import DELAY_LEVELS_MAX, MESSAGES_PER_PAGE_MAX, WAITING_READ_MAX
from kourou.model.message import Property, PullStatus, parse_delay_levels
from kourou.model.names import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TRANSACTION_GROUP
from kourou.model.topic import MessageQueue
from kourou_console.gateway import Gateway
from kourou_console.lists import Missing, Name, brokers_of, cut, why
from kourou_console.messages.transactions import id_of_waiting
from kourou_console.messages.views import PREVIEW_BYTES, BodyMax, Budget, StoredMessageView, view_of
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Pending messages")


READ_COUNT = 256
READ_BYTES = 1 << 20
AT_ONCE = 8


@dataclass(slots=True)
class ReadRange:
    """Some messages of a queue from an offset on; `left` were not read."""

    messages: list[ReceivedMessage] = field(default_factory=list)
    left: int = 0
    damaged: list[Missing] = field(default_factory=list)


async def read_range(
    reading: Reading, queue: MessageQueue, first: int, end: int, most: int
) -> ReadRange:
    """The messages in [first, end) of a queue, at most `most`."""
    found = ReadRange()
    at = first
    while at < end and len(found.messages) < most:
        try:
            result = await reading.read(
                queue,
                at,
                count_max=min(READ_COUNT, most - len(found.messages)),
                size_bytes_max=READ_BYTES,
            )
        except UnreadableMessages as error:
            found.damaged.append(Missing(f"{queue!s}@{at}", str(error)))
            at = max(at + 1, error.next_offset)
            continue
        if result.status is PullStatus.NO_NEW_MESSAGE:
            return found
        found.messages += [one.alone() for one in result.messages if one.offset < end]
        at = max(at + 1, result.next_offset)
    found.left = max(0, end - at)
    return found


# -- delayed --------------------------------------------------------------------------------------


class LevelView(msgspec.Struct, frozen=True):
    """How many wait at a level of a broker, of all topics."""

    broker: str
    level: int
    delay_ms: int | None
    waiting: int


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A delayed message; `due_ms` None: its broker does not report the level's delay."""

    message: ReceivedMessage
    level: int
    due_ms: int | None

    @property
    def topic(self) -> str:
        """The destination topic."""
        return self.message.properties.get(Property.REAL_TOPIC, self.message.queue.topic)


@dataclass(slots=True)
class DelayedMessages:
    """The delayed messages of all brokers, as far as they were read."""

    levels: list[LevelView] = field(default_factory=list)
    messages: list[DelayedMessage] = field(default_factory=list)
    truncated: bool = False
    missing: list[Missing] = field(default_factory=list)


async def delayed_messages(gateway: Gateway, level: int | None, most: int) -> DelayedMessages:
    """The next `most` messages of each level of each broker, and the number of delayed messages."""
    everything = DelayedMessages()

    async def one(broker: str) -> None:
        try:
            await _of_broker(gateway, broker, level, most, everything)
        except KourouError as error:
            everything.missing.append(Missing(broker, why(error)))

    await asyncio.gather(*map(one, await brokers_of(gateway)))
    everything.levels.sort(key=lambda one: (one.broker, one.level))
    everything.messages.sort(key=lambda one: (one.due_ms or 0, one.message.queue))
    return everything


async def _of_broker(
    gateway: Gateway, broker: str, level: int | None, most: int, everything: DelayedMessages
) -> None:
    reading = gateway.admin.reading
    settings = await gateway.admin.brokers.config(broker)
    levels_ms = parse_delay_levels(settings.get("messageDelayLevel", ""))
    delivered = await reading.delay_offsets(broker)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        queue = MessageQueue(SCHEDULE_TOPIC, broker, number - 1)
        async with gate:
            low, high = await reading.bounds(queue)
            first = max(low, delivered.get(number, 0))
            if high <= first:
                return
            found = await read_range(reading, queue, first, high, most)
        delay_ms = levels_ms[number - 1] if number <= len(levels_ms) else None
        everything.levels.append(LevelView(broker, number, delay_ms, high - first))
        everything.truncated = everything.truncated or found.left > 0
        everything.missing += found.damaged
        everything.messages += [
            DelayedMessage(
                message,
                number,
                None if delay_ms is None else message.store_timestamp + delay_ms,
            )
            for message in found.messages
        ]

    wanted = range(1, len(levels_ms) + 1) if level is None else (level,)
    await asyncio.gather(*map(one, wanted))


# -- half messages --------------------------------------------------------------------------------


@dataclass(slots=True)
class OpenHalfMessages:
    """Open half messages of all brokers, as far as they were read."""

    messages: list[ReceivedMessage] = field(default_factory=list)
    truncated: bool = False
    missing: list[Missing] = field(default_factory=list)


async def open_half_messages(gateway: Gateway) -> OpenHalfMessages:
    """The undecided half messages, the oldest first."""
    everything = OpenHalfMessages()
    reading = gateway.admin.reading
    # A broker has these topics from its first transaction on.
    with_halves, with_ends = await _with(reading, HALF_TOPIC), await _with(reading, OP_TOPIC)

    async def one(broker: str) -> None:
        try:
            await _halves_of(reading, broker, everything, has_ends=broker in with_ends)
        except TopicNotFound:
            pass  # the topic is not yet known here: there are no halves
        except KourouError as error:
            everything.missing.append(Missing(broker, why(error)))

    await asyncio.gather(*map(one, with_halves))
    everything.messages.sort(key=lambda half: (half.born_timestamp, half.queue, half.offset))
    return everything


async def _with(reading: Reading, topic: str) -> list[str]:
    """The brokers that have a topic."""
    try:
        return sorted({queue.broker_name for queue in await reading.queues(topic)})
    except TopicNotFound:
        return []


async def _halves_of(
    reading: Reading, broker: str, everything: OpenHalfMessages, *, has_ends: bool
) -> None:
    half_queue, op_queue = MessageQueue(HALF_TOPIC, broker, 0), MessageQueue(OP_TOPIC, broker, 0)
    # The op messages are read from an offset before the halves, to an end after them, because the
    # broker continues to work: a half message that was decided in the meantime must not appear as
    # open.
    op_first = (await _rest(reading, op_queue))[0] if has_ends else 0
    half_first, half_end = await _rest(reading, half_queue)
    if half_first >= half_end:
        return
    found = await read_range(reading, half_queue, half_first, half_end, WAITING_READ_MAX)
    ops = ReadRange()
    if has_ends:
        low, op_end = await reading.bounds(op_queue)
        ops = await read_range(reading, op_queue, max(low, op_first), op_end, 2 * WAITING_READ_MAX)
    everything.missing += found.damaged + ops.damaged
    if found.left:
        everything.truncated = True
    if ops.left:
        everything.missing.append(
            Missing(f"{op_queue!s}", f"{ops.left} more ends of transactions were not read")
        )
        everything.truncated = True
    everything.messages += still_open(found.messages, ops.messages)


async def _rest(reading: Reading, queue: MessageQueue) -> tuple[int, int]:
    """The range from the broker's own offset to the end."""
    low, high = await reading.bounds(queue)
    done = await reading.committed(TRANSACTION_GROUP, queue)
    return max(low, done or 0), high


def still_open(
    found: Sequence[ReceivedMessage], ops: Sequence[ReceivedMessage]
) -> list[ReceivedMessage]:
    """The half messages that no op message names, the newest copy of each."""
    ended: set[int] = set()
    for op in ops:
        # RocketMQ 5 joins several offsets with commas in one op message.
        for text in op.raw_body.split(b","):
            if text.strip().isdigit():
                ended.add(int(text))
    newest: dict[tuple[str, str, int], ReceivedMessage] = {}
    for half in found:
        if half.offset in ended:
            continue
        group = half.properties.get(Property.PGROUP, "")
        newest[group, half.message_id, half.born_timestamp] = half
    return list(newest.values())


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
    message: StoredMessageView


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
    message: StoredMessageView


class HalfList(msgspec.Struct, frozen=True, kw_only=True):
    """Open transactions, the oldest first. `total` null: not all were read."""

    items: list[HalfView]
    total: int | None
    truncated: bool
    as_of_ms: int
    missing: list[Missing] = []


@OPERATIONS.get("/v1/delayed", "list_delayed")
async def list_delayed(gateway: Gateway, parameters: DelayedQuery) -> DelayedList:
    """Delayed messages, the next one due first, and their number at each level. Of a topic, the
    first 2000 of each level are looked at.
    """
    # One topic may have few among many.
    most = parameters.count if parameters.topic is None else WAITING_READ_MAX
    found = await delayed_messages(gateway, parameters.level, most)
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
        levels=found.levels,
        total=total,
        truncated=more or found.truncated,
        as_of_ms=gateway.clock.now_ms(),
        missing=found.missing,
    )


async def _delayed(one: DelayedMessage, budget: Budget, body_max: int) -> DelayedView:
    return DelayedView(
        topic=one.topic,
        level=one.level,
        due_ms=one.due_ms,
        message=await view_of(one.message, budget, body_max),
    )


@OPERATIONS.get("/v1/transactions", "list_transactions")
async def list_transactions(gateway: Gateway, parameters: HalfQuery) -> HalfList:
    """Half messages of open transactions, oldest first. Those of this gateway's producer group have
    the `id` that commit and rollback take. Of each broker, the first 2000 are looked at.
    """
    found = await open_half_messages(gateway)
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
