"""The progress of groups, and changes of it.

State: none. A reset is an event at each broker, with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from kourou.client.admin.groups import TO_THE_END_MS, OffsetMove
from kourou.errors import BadRequest, GroupNotFound, KourouError, Rejected
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper, QueueTimeSpan
from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo
from kourou.time_limit import within
from kourou_console.api.groups import GroupChange, QueueLag, all_groups, lag_messages, lag_of
from kourou_console.api.topic_details import taken
from kourou_console.gateway import Gateway
from kourou_console.lists import (
    LIST_ITEMS,
    LOOK_S,
    Done,
    Limit,
    Listing,
    Missing,
    Name,
    Reason,
    asked,
    brokers_of,
    cut,
    view_from,
)
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Offsets")

TO_THE_BEGIN_MS = 0


class LagWanted(msgspec.Struct, frozen=True):
    """One topic, or all that the group consumes."""

    group: Name
    topic: Name | None = None
    limit: Limit = LIST_ITEMS


class TopicLag(msgspec.Struct, frozen=True):
    """The sum over a topic's queues; `lag_ms` is the age of the oldest message that waits.

    `out_per_s`: messages a second that the group got in the last minute, null if unknown.
    """

    topic: str
    lag_messages: int
    lag_ms: int | None
    out_per_s: float | None


class LagList(Listing[QueueLag], frozen=True, kw_only=True):
    """Consumer lag by queue, the largest first.

    `lag_messages` is the total, null if a broker is missing; it excludes handled dead letters.
    """

    lag_messages: int | None
    topics: list[TopicLag]


class GroupTopicChange(msgspec.Struct, frozen=True):
    """The group and the topic; `preview`: only report the effects."""

    group: Name
    topic: Name
    preview: bool = False


class ResetBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """To what was stored at `at_ms`, to the first message kept, or to the end.

    Without `force` no queue is moved forward.
    """

    to: Literal["time", "begin", "end"]
    at_ms: Annotated[int, msgspec.Meta(ge=0, le=2**62)] | None = None
    force: bool = True
    reason: Reason = ""


class SkipBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole backlog is skipped."""

    reason: Reason = ""


class CloneBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin, in one topic or all."""

    from_group: Name
    topic: Name | None = None
    reason: Reason = ""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One queue; `from` null: the group has no progress there."""

    topic: str
    broker: str
    queue: int
    before: int | None = msgspec.field(name="from")
    to: int
    skipped: int
    repeated: int


class Moves(Done, frozen=True, kw_only=True):
    """Where a group is moved; `skipped` messages it never gets, `repeated` it gets again."""

    group: str
    items: list[Move]
    skipped: int
    repeated: int


# -- queries --------------------------------------------------------------------------------------


@OPERATIONS.get("/v1/groups/{group}/lag", "group_lag", needs=())
async def lag(gateway: Gateway, parameters: LagWanted) -> LagList:
    """A group's lag by queue: messages, ms, and the consumer of the queue."""
    group = parameters.group
    progress, missing = await _progress(gateway, group, parameters.topic)
    topics = sorted({queue.topic for queue in progress})
    brokers = {
        topic: sorted({one.broker_name for one in progress if one.topic == topic})
        for topic in topics
    }
    (spans, unspanned), (rates, uncounted), owners = await asyncio.gather(
        asked(topics, lambda topic: gateway.admin.offsets.time_spans(group, topic)),
        asked(topics, lambda topic: taken(gateway, brokers[topic], group, topic)),
        _owners(gateway, group),
    )
    known: dict[MessageQueue, QueueTimeSpan] = {}
    for found in spans.values():
        known.update(found)
    rows = [_row(queue, one, known, owners) for queue, one in progress.items()]
    rows.sort(key=lambda row: (-row.lag_messages, row.topic, row.broker, row.queue))
    items, truncated = cut(rows, parameters.limit)
    return LagList(
        items=items,
        total=None if missing else len(rows),
        truncated=truncated,
        as_of_ms=gateway.clock.now_ms(),
        missing=[*missing, *unspanned, *uncounted],
        lag_messages=None if missing else lag_messages(progress),
        topics=[_topic(topic, rows, rates.get(topic)) for topic in topics],
    )


async def _progress(
    gateway: Gateway, group: str, topic: str | None
) -> tuple[dict[MessageQueue, OffsetWrapper], list[Missing]]:
    """The group's progress at each broker. Raises GroupNotFound if all replied and none has it."""
    names = await brokers_of(gateway)

    async def look(name: str) -> dict[MessageQueue, OffsetWrapper]:
        try:
            return await gateway.admin.offsets.at(name, group, topic)
        except Rejected:  # this broker does not have the group, or the topic
            return {}

    found, missing = await asked(names, look)
    progress: dict[MessageQueue, OffsetWrapper] = {}
    for every in found.values():
        progress.update(every)
    if not progress and not missing:
        known, unasked = await all_groups(gateway)
        if not unasked and not any(group in every for every in known.values()):
            raise GroupNotFound(f"group {group!r} not found")
    return progress, missing


async def _owners(gateway: Gateway, group: str) -> dict[MessageQueue, str]:
    """The consumer of each queue, as reported by consumers; empty if none replies."""
    try:
        infos = await within(gateway.admin.members.running_infos(group), LOOK_S)
    except (KourouError, TimeoutError):  # no consumer is connected or replies in time
        return {}
    return {
        queue: client
        for client, info in infos.items()
        if isinstance(info, ConsumerRunningInfo)
        for queue in info.queues
    }


def _row(
    queue: MessageQueue,
    one: OffsetWrapper,
    spans: Mapping[MessageQueue, QueueTimeSpan],
    owners: Mapping[MessageQueue, str],
) -> QueueLag:
    fields = lag_of(queue, one)
    span = spans.get(queue)
    age_ms = None if span is None else span.delay_time
    return QueueLag(
        **fields,
        lag_ms=0 if not fields["lag_messages"] else age_ms,
        member=owners.get(queue),
    )


def _topic(topic: str, rows: list[QueueLag], rate: tuple[float, int] | None) -> TopicLag:
    mine = [row for row in rows if row.topic == topic]
    ages = [row.lag_ms for row in mine if row.lag_ms is not None]
    return TopicLag(
        topic,
        sum(row.lag_messages for row in mine),
        max(ages) if len(ages) == len(mine) and ages else None,
        None if rate is None else rate[0],
    )


# -- changes --------------------------------------------------------------------------------------


@OPERATIONS.post("/v1/groups/{group}/topics/{topic}/offsets/reset", "reset_offsets", needs=())
async def reset(gateway: Gateway, parameters: GroupTopicChange, body: ResetBody) -> Moves:
    """Reset a group's offsets to a time, the beginning or the end. `preview=true` shows the change
    of each queue.
    """
    if (body.to == "time") != (body.at_ms is not None):
        raise BadRequest("at_ms requires to=time, and to=time requires at_ms")
    at_ms = {"begin": TO_THE_BEGIN_MS, "end": TO_THE_END_MS}.get(body.to, body.at_ms or 0)
    return await _moved(
        gateway, parameters, at_ms, force=body.force or body.to == "end", reason=body.reason
    )


@OPERATIONS.post("/v1/groups/{group}/topics/{topic}/offsets/skip", "skip_accumulation", needs=())
async def skip(gateway: Gateway, parameters: GroupTopicChange, body: SkipBody) -> Moves:
    """Skip the backlog of a group: reset its offsets to the end of a topic."""
    return await _moved(gateway, parameters, TO_THE_END_MS, force=True, reason=body.reason)


async def _moved(
    gateway: Gateway, parameters: GroupTopicChange, at_ms: int, *, force: bool, reason: str
) -> Moves:
    group, topic = parameters.group, parameters.topic
    offsets = gateway.admin.offsets
    known, missing = await all_groups(gateway)
    if not missing and not any(group in every for every in known.values()):
        raise GroupNotFound(f"group {group!r} not found")
    moves = await offsets.preview_reset(group, topic, at_ms, force=force)
    if not parameters.preview:
        done = await offsets.reset(group, topic, at_ms, force=force, reason=reason)
        moves = {
            queue: OffsetMove(moves[queue].before if queue in moves else None, after)
            for queue, after in done.items()
        }
    return _response(gateway, group, moves, missing, preview=parameters.preview)


@OPERATIONS.post("/v1/groups/{group}/offsets/clone", "clone_offsets", needs=())
async def clone(gateway: Gateway, parameters: GroupChange, body: CloneBody) -> Moves:
    """Copy the offsets of another group."""
    offsets = gateway.admin.offsets
    moves = await offsets.preview_clone(body.from_group, parameters.group, body.topic)
    if not parameters.preview:
        await offsets.clone(body.from_group, parameters.group, body.topic, reason=body.reason)
    return _response(gateway, parameters.group, moves, [], preview=parameters.preview)


def _response(
    gateway: Gateway,
    group: str,
    moves: Mapping[MessageQueue, OffsetMove],
    missing: list[Missing],
    *,
    preview: bool,
) -> Moves:
    items = [
        view_from(
            Move,
            one,
            topic=queue.topic,
            broker=queue.broker_name,
            queue=queue.queue_id,
            to=one.after,
        )
        for queue, one in sorted(moves.items())
    ]
    skipped = sum(one.skipped for one in items)
    repeated = sum(one.repeated for one in items)
    will = "would be" if preview else "is"
    says = [f"{group} {will} moved in {sum(one.before != one.to for one in items)} queues."]
    if skipped:
        says.append(f"{skipped:,} unconsumed messages {will} skipped.")
    if repeated:
        says.append(f"{repeated:,} consumed messages {will} redelivered.")
    if not skipped and not repeated:
        says.append("No message is skipped or repeated.")
    return Moves(
        group=group,
        preview=preview,
        says=says,
        items=items,
        skipped=skipped,
        repeated=repeated,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )
