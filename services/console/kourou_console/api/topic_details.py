"""A topic's consumer groups and rates, the distribution of its queues, and the units of a queue."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from kourou.client.consumer.allocation import Averagely
from kourou.errors import Rejected
from kourou.model.limits import (
    CONSOLE_COUNTED_TOPICS_MAX,
    CONSOLE_SHARE_MEMBERS_MAX,
    QUEUE_LOOK_UNITS_MAX,
)
from kourou.model.names import DLQ_PREFIX, RETRY_PREFIX
from kourou.model.topic import MessageQueue
from kourou_console.api.topics import TopicPath
from kourou_console.gateway import Gateway
from kourou_console.lists import LIST_ITEMS, Limit, Listing, Name, asked
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Topics")

UNITS = 32


class TopicGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group of a topic; `members` null: unknown, 0: none connected."""

    group: str
    members: int | None
    lag_messages: int | None
    lag_ms: int | None
    out_per_s: float | None
    out_24h: int | None


class Share(msgspec.Struct, frozen=True):
    """A queue and the consumer that would get it."""

    member: str
    broker: str
    queue: int


class ShareParameters(msgspec.Struct, frozen=True):
    """`member` is repeated, one client ID each."""

    topic: Name
    member: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=CONSOLE_SHARE_MEMBERS_MAX)]


class TopicCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What comes into a topic, and what one group takes out; `group` null: no group consumes it."""

    topic: str
    group: str | None
    lag_messages: int | None
    in_per_s: float
    out_per_s: float
    in_24h: int
    out_24h: int


class CountersWanted(msgspec.Struct, frozen=True):
    """One topic or all; `active`: only those with messages in the last minute."""

    topic: Name | None = None
    active: bool = False
    limit: Limit = LIST_ITEMS


@OPERATIONS.get("/v1/topics/{topic}/groups", "topic_groups")
async def groups(gateway: Gateway, parameters: TopicPath) -> Listing[TopicGroup]:
    """The groups that consume a topic: consumers, lag in messages and ms, rate."""
    names = await gateway.admin.topics.consumer_groups(parameters.topic)
    brokers = sorted(await gateway.admin.topics.config(parameters.topic))

    async def look(group: str) -> TopicGroup:
        return await _group(gateway, parameters.topic, group, brokers)

    found, missing = await asked(names, look)
    items = [
        found.get(
            name,
            TopicGroup(
                group=name,
                members=None,
                lag_messages=None,
                lag_ms=None,
                out_per_s=None,
                out_24h=None,
            ),
        )
        for name in names
    ]
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms(), missing=missing)


async def _group(gateway: Gateway, topic: str, group: str, brokers: list[str]) -> TopicGroup:
    offsets = gateway.admin.offsets
    lag, spans, members, (rate, day) = await asyncio.gather(
        offsets.lag(group, topic),
        offsets.time_spans(group, topic),
        member_count(gateway, group),
        taken(gateway, brokers, group, topic),
    )
    return TopicGroup(
        group=group,
        members=members,
        lag_messages=lag,
        lag_ms=max((one.delay_time for one in spans.values()), default=None) if lag else 0,
        out_per_s=rate,
        out_24h=day,
    )


async def member_count(gateway: Gateway, group: str) -> int:
    """The number of connected consumers; 0 if brokers report none."""
    try:
        return len(await gateway.admin.groups.members(group))
    except Rejected:
        return 0


async def taken(gateway: Gateway, brokers: list[str], group: str, topic: str) -> tuple[float, int]:
    """Messages per second that a group consumes from a topic at these brokers, and per day."""
    return await _counted(gateway, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")


async def _counted(gateway: Gateway, brokers: list[str], item: str, key: str) -> tuple[float, int]:
    """A counter's rate and daily sum over brokers; 0 if it was never counted."""
    rate, total = 0.0, 0
    for name in brokers:
        try:
            found = await gateway.admin.brokers.statistics(name, item, key)
        except Rejected:
            continue
        rate += found.stats_minute.tps
        total += found.stats_day.sum or found.stats_hour.sum or found.stats_minute.sum
    return round(rate, 2), total


@OPERATIONS.get("/v1/topics/{topic}/allocation", "topic_allocation")
async def allocation(gateway: Gateway, parameters: ShareParameters) -> Listing[Share]:
    """How a group of these consumers would share the topic's queues."""
    found = await gateway.admin.topics.route(parameters.topic)
    queues = sorted(
        MessageQueue(parameters.topic, one.broker_name, number)
        for one in found.queue_datas
        for number in range(one.read_queue_nums)
    )
    share = Averagely()
    names = sorted(set(parameters.member))
    rows = [
        Share(name, queue.broker_name, queue.queue_id)
        for name in names
        for queue in share(queues, names, name)
    ]
    return Listing(items=rows, total=len(rows), as_of_ms=gateway.clock.now_ms())


@OPERATIONS.get("/v1/statistics", "topic_counters")
async def counters(gateway: Gateway, parameters: CountersWanted) -> Listing[TopicCounters]:
    """Every topic and group: messages per second in and out, per 24 hours, and lag."""
    if parameters.topic is not None:
        names = [parameters.topic]
    else:
        names = [
            name
            for name in await gateway.admin.topics.list()
            if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
        ]
    shown = names[:CONSOLE_COUNTED_TOPICS_MAX]

    async def look(topic: str) -> list[TopicCounters]:
        return await _counters(gateway, topic)

    found, missing = await asked(shown, look)
    rows = [row for name in shown for row in found.get(name, [])]
    if parameters.active:
        rows = [row for row in rows if row.in_per_s or row.out_per_s]
    if parameters.topic is None:  # a name server still has it, but no broker
        missing = [one for one in missing if "does not exist" not in one.why]
    cut_short = len(names) > len(shown)
    return Listing(
        items=rows[: parameters.limit],
        total=None if cut_short or missing else len(rows),
        truncated=cut_short or len(rows) > parameters.limit,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


async def _counters(gateway: Gateway, topic: str) -> list[TopicCounters]:
    brokers = sorted(await gateway.admin.topics.config(topic))
    in_rate, in_sum = await _counted(gateway, brokers, "TOPIC_PUT_NUMS", topic)
    rows = []
    for group in await gateway.admin.topics.consumer_groups(topic):
        out_rate, out_sum = await taken(gateway, brokers, group, topic)
        rows.append(
            TopicCounters(
                topic=topic,
                group=group,
                lag_messages=await gateway.admin.offsets.lag(group, topic),
                in_per_s=in_rate,
                out_per_s=out_rate,
                in_24h=in_sum,
                out_24h=out_sum,
            )
        )
    nobody = TopicCounters(
        topic=topic,
        group=None,
        lag_messages=None,
        in_per_s=in_rate,
        out_per_s=0.0,
        in_24h=in_sum,
        out_24h=0,
    )
    return rows or [nobody]


class QueueUnitView(msgspec.Struct, frozen=True, kw_only=True):
    """One unit; `passes`: the given group would get its message."""

    offset: int
    position: int
    size_bytes: int
    tag_code: str
    passes: bool


class UnitList(Listing[QueueUnitView], frozen=True, kw_only=True):
    """Units from an offset on, and the queue's bounds."""

    min_offset: int
    max_offset: int
    expression: str | None


class UnitsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The queue and the first offset; `group`: evaluate this group's subscription."""

    topic: Name
    broker: Name
    queue: Annotated[int, msgspec.Meta(ge=0, le=65_535)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    count: Annotated[int, msgspec.Meta(ge=1, le=QUEUE_LOOK_UNITS_MAX)] = UNITS
    group: Name | None = None


@OPERATIONS.get("/v1/topics/{topic}/queues/{broker}/{queue}/units", "queue_units", needs=())
async def units(gateway: Gateway, parameters: UnitsWanted) -> UnitList:
    """Consume queue entries: log position, size, tag code."""
    queue = MessageQueue(parameters.topic, parameters.broker, parameters.queue)
    found = await gateway.admin.messages.units(
        queue, parameters.offset, count=parameters.count, group=parameters.group
    )
    items = [
        QueueUnitView(
            offset=parameters.offset + place,
            position=one.physic_offset,
            size_bytes=one.physic_size,
            tag_code=str(one.tags_code),
            passes=one.eval,
        )
        for place, one in enumerate(found.units)
    ]
    return UnitList(
        items=items,
        total=max(0, found.max_index - found.min_index),
        truncated=parameters.offset + len(items) < found.max_index,
        as_of_ms=gateway.clock.now_ms(),
        min_offset=found.min_index,
        max_offset=found.max_index,
        expression=None if found.subscription is None else found.subscription.expression,
    )
