"""Consumer groups: lists, configurations, creation, changes and deletion.

State: none. A change is an event at each broker, with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from kourou.errors import BadRequest, GroupNotFound, KourouError, Rejected, Unavailable
from kourou.model.names import DLQ_PREFIX, check_group, is_system_group
from kourou.model.subscription import GroupConfig
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper
from kourou_console.gateway import Gateway
from kourou_console.lists import (
    LIST_ITEMS,
    Done,
    Limit,
    Listing,
    Missing,
    Name,
    Reason,
    ValueChange,
    answers,
    asked,
    brokers_of,
    changes_between,
    cut,
    why,
)
from kourou_console.metrics.sampler import Sampler
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Groups")

_FIELDS = (
    *("consume_enabled", "from_min_enabled", "broadcast_enabled", "retry_queues", "attempts"),
    *("broker_id", "slow_broker_id", "notify_changes"),
)
_BROKERS_NAMES = {
    "consume_enabled": "consume_enable",
    "from_min_enabled": "consume_from_min_enable",
    "broadcast_enabled": "consume_broadcast_enable",
    "retry_queues": "retry_queue_nums",
    "attempts": "retry_max_times",
    "broker_id": "broker_id",
    "slow_broker_id": "which_broker_when_consume_slowly",
    "notify_changes": "notify_consumer_ids_changed_enable",
}


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """A group's progress in one queue.

    `lag_ms` is the age of the oldest unconsumed message, 0 without one, null if not requested;
    `member` is the consumer that has the queue now.
    """

    topic: str
    broker: str
    queue: int
    end: int
    committed: int
    lag_messages: int
    lag_ms: int | None = None
    last_consumed_ms: int | None = None
    member: str | None = None


def lag_of(queue: MessageQueue, one: OffsetWrapper) -> dict[str, Any]:
    """The fields from a broker's statistics."""
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "end": one.broker_offset,
        "committed": one.consumer_offset,
        "lag_messages": max(0, one.broker_offset - one.consumer_offset),
        "last_consumed_ms": one.last_timestamp or None,
    }


def lag_messages(progress: Mapping[MessageQueue, OffsetWrapper]) -> int:
    """The lag in messages; 0 in a dead-letter topic, where the offset is an operator's mark."""
    return sum(
        max(0, one.broker_offset - one.consumer_offset)
        for queue, one in progress.items()
        if not queue.topic.startswith(DLQ_PREFIX)
    )


class GroupConfigView(msgspec.Struct, frozen=True, kw_only=True):
    """A group's configuration at one broker; `attempts`: failures until dead-lettering."""

    broker: str
    consume_enabled: bool
    from_min_enabled: bool
    broadcast_enabled: bool
    retry_queues: int
    attempts: int
    broker_id: int
    slow_broker_id: int
    notify_changes: bool


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group over all brokers.

    `configured`: a broker has its configuration. Otherwise it was deleted (or is a system group)
    and is listed because it still has progress or consumers. `dead_letters` are as of the last
    sample, and so is `lag_messages` in a list, null if a broker did not reply; `consume_enabled`
    and `attempts` are null if brokers differ.
    """

    group: str
    system: bool
    configured: bool
    brokers: list[str]
    members: int | None
    model: str | None
    lag_messages: int | None
    dead_letters: int | None
    consume_enabled: bool | None
    attempts: int | None


class GroupDetail(Group, frozen=True, kw_only=True):
    """A group, its settings at each broker, and in what these differ.

    `lag_messages` is as of now, as the group's lag queue by queue is; null if unknown.
    """

    configs: list[GroupConfigView]
    topics: list[str]
    clashes: list[str]
    as_of_ms: int
    missing: list[Missing]


class GroupsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """`search` is a part of the name; `system`: include groups that every broker has."""

    search: str = ""
    system: bool = False
    limit: Limit = LIST_ITEMS


class GroupPath(msgspec.Struct, frozen=True):
    """The group."""

    group: Name


class GroupChange(msgspec.Struct, frozen=True):
    """The group; `preview`: only report the effects."""

    group: Name
    preview: bool = False


class GroupBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is not named stays as it is; a new group has the usual values.

    At every broker, at those of a cluster, or at one.
    """

    consume_enabled: bool | None = None
    from_min_enabled: bool | None = None
    broadcast_enabled: bool | None = None
    retry_queues: Annotated[int, msgspec.Meta(ge=0, le=1_024)] | None = None
    attempts: Annotated[int, msgspec.Meta(ge=0, le=100_000)] | None = None
    broker_id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    slow_broker_id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    notify_changes: bool | None = None
    broker: Name | None = None
    cluster: Name | None = None
    reason: Reason = ""


class BrokerGroupChange(msgspec.Struct, frozen=True, kw_only=True):
    """What changes at one broker; `before` null: it does not have the group yet."""

    broker: str
    before: GroupConfigView | None
    after: GroupConfigView
    changes: list[ValueChange]


class GroupChanges(Done, frozen=True, kw_only=True):
    """What a change does at each broker."""

    group: str
    created: bool
    items: list[BrokerGroupChange]


class GroupDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """The group, at which brokers; `remove_offsets` deletes its progress, too."""

    group: Name
    preview: bool = False
    remove_offsets: bool = False
    broker: Name | None = None
    cluster: Name | None = None
    reason: Reason = ""


class GroupLoss(Done, frozen=True, kw_only=True):
    """What goes with a group."""

    group: str
    members: int | None
    lag_messages: int | None
    topics: list[str]


# -- queries --------------------------------------------------------------------------------------


async def all_groups(
    gateway: Gateway, broker: str | None = None, cluster: str | None = None
) -> tuple[dict[str, dict[str, GroupConfig]], list[Missing]]:
    """Every group of every broker that replies: broker -> group -> config."""
    names = await brokers_of(gateway, broker, cluster)

    async def configs(name: str) -> dict[str, GroupConfig]:
        return (await gateway.admin.groups.configs(broker=name)).get(name, {})

    return await answers(names, configs)


@OPERATIONS.get("/v1/groups", "groups")
async def groups(gateway: Gateway, parameters: GroupsWanted) -> Listing[Group]:
    """Consumer groups of all brokers, with consumers, lag and dead letters."""
    found, missing = await all_groups(gateway)
    sampler = gateway.part(Sampler)
    await sampler.fresh()
    missing += sampler.without_lags()
    by_group: dict[str, dict[str, GroupConfig]] = {name: {} for name in sampler.lags()}
    for broker, configs in found.items():
        for name, config in configs.items():
            by_group.setdefault(name, {})[broker] = config
    part = parameters.search.lower()
    names = [
        name
        for name in sorted(by_group)
        if part in name.lower() and (parameters.system or not is_system_group(name))
    ]
    # The last sample may be older than a deletion.
    unset = [name for name in names if not by_group[name]]
    left, unknown = await asked(unset, lambda name: _is_left(gateway, name))
    names = [name for name in names if left.get(name, True)]
    shown, truncated = cut(names, parameters.limit)
    members, unasked = await asked(shown, lambda name: connected(gateway, name))
    items = [group_of(name, by_group[name], members.get(name), sampler) for name in shown]
    return Listing(
        items=items,
        total=None if missing else len(names),
        truncated=truncated,
        as_of_ms=gateway.clock.now_ms(),
        missing=[*missing, *unknown, *unasked],
    )


async def _is_left(gateway: Gateway, group: str) -> bool:
    """Whether a group without configuration still has progress or consumers."""
    return bool(await topics_of(gateway, group)) or (await connected(gateway, group))[0] > 0


async def connected(gateway: Gateway, group: str) -> tuple[int, str | None]:
    """The number of connected consumers, and their message model; no consumers are not an error."""
    try:
        found = await gateway.admin.groups.connections(group)
    except Rejected:
        return 0, None
    return len(found.connections), found.message_model.value


def group_of(
    name: str,
    configs: Mapping[str, GroupConfig],
    members: tuple[int, str | None] | None,
    sampler: Sampler,
) -> Group:
    """A group's configuration at its brokers, with values of the last sample."""
    enabled = {one.consume_enable for one in configs.values()}
    attempts = {one.retry_max_times for one in configs.values()}
    return Group(
        group=name,
        system=is_system_group(name),
        configured=bool(configs),
        brokers=sorted(configs),
        members=None if members is None else members[0],
        model=None if members is None else members[1],
        lag_messages=sampler.lag_of(name),
        dead_letters=None if sampler.dead is None else sampler.dead.get(name, 0),
        consume_enabled=enabled.pop() if len(enabled) == 1 else None,
        attempts=attempts.pop() if len(attempts) == 1 else None,
    )


def config_of(broker: str, one: GroupConfig) -> GroupConfigView:
    """A group's configuration at a broker, as a response item."""
    return GroupConfigView(
        broker=broker,
        **{ours: getattr(one, theirs) for ours, theirs in _BROKERS_NAMES.items()},
    )


@OPERATIONS.get("/v1/groups/{group}", "group")
async def group(gateway: Gateway, parameters: GroupPath) -> GroupDetail:
    """One group: settings at each broker, topics, differences between brokers."""
    name = parameters.group
    found, missing = await all_groups(gateway)
    configs = {broker: every[name] for broker, every in found.items() if name in every}
    sampler = gateway.part(Sampler)
    await sampler.fresh()
    if not configs and not missing and not await _is_left(gateway, name):
        raise GroupNotFound(f"group {name!r} not found")
    members, progress = await asyncio.gather(
        asked([name], lambda one: connected(gateway, one)),
        _progress_of(gateway, name),
        return_exceptions=True,
    )
    consumed: list[str] = []
    lag: int | None = None
    if isinstance(progress, BaseException):
        missing = [*missing, Missing("topics", why(progress))]
    else:
        consumed, lag = _topics_in(progress), lag_messages(progress)
    seen = None if isinstance(members, BaseException) else members[0].get(name)
    row = msgspec.structs.replace(group_of(name, configs, seen, sampler), lag_messages=lag)
    return GroupDetail(
        **{field: getattr(row, field) for field in row.__struct_fields__},
        configs=[config_of(broker, one) for broker, one in sorted(configs.items())],
        topics=consumed,
        clashes=_clashes(configs),
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


async def topics_of(gateway: Gateway, group: str) -> list[str]:
    """The topics in which a group has progress or subscriptions; none if it is unknown."""
    return _topics_in(await _progress_of(gateway, group))


async def _progress_of(gateway: Gateway, group: str) -> Mapping[MessageQueue, OffsetWrapper]:
    try:
        return await gateway.admin.offsets.of(group)
    except GroupNotFound:
        return {}


def _topics_in(progress: Mapping[MessageQueue, OffsetWrapper]) -> list[str]:
    return sorted({queue.topic for queue in progress})


def _clashes(configs: Mapping[str, GroupConfig]) -> list[str]:
    shown = {broker: config_of(broker, one) for broker, one in configs.items()}
    said = []
    for field in _FIELDS:
        values = {broker: getattr(one, field) for broker, one in shown.items()}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{str(values[name]).lower()} at {name}" for name in sorted(values))
            said.append(f"{field.replace('_', ' ')}: {listed}")
    return said


# -- changes --------------------------------------------------------------------------------------


@OPERATIONS.put("/v1/groups/{group}", "put_group")
async def put(gateway: Gateway, parameters: GroupChange, body: GroupBody) -> GroupChanges:
    """Create or change a group; fields left out are unchanged. `preview=true` shows changes."""
    name = check_group(parameters.group)
    if body.broker is not None and body.cluster is not None:
        raise BadRequest("give a broker or a cluster, not both")
    found, missing = await all_groups(gateway, body.broker, body.cluster)
    before = {broker: every.get(name) for broker, every in sorted(found.items())}
    items = [_item(broker, name, old, body) for broker, old in before.items()]
    if not parameters.preview:
        if missing:
            raise Unavailable(
                f"{missing[0].what} did not report its current state: {missing[0].why}",
                hint="retry, or select the brokers to change",
            )
        for item in items:
            if item.changes or item.before is None:
                await gateway.admin.groups.create(
                    _group_config(name, item.after), broker=item.broker, reason=body.reason
                )
    return GroupChanges(
        group=name,
        created=not any(before.values()),
        preview=parameters.preview,
        says=_preview_lines(name, items, preview=parameters.preview),
        items=items,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


def _item(broker: str, name: str, old: GroupConfig | None, body: GroupBody) -> BrokerGroupChange:
    before = None if old is None else config_of(broker, old)
    usual = before or config_of(broker, GroupConfig(name))
    named = {field: value for field in _FIELDS if (value := getattr(body, field)) is not None}
    after = msgspec.structs.replace(usual, **named)
    changes = changes_between(before, after, _FIELDS)
    return BrokerGroupChange(broker=broker, before=before, after=after, changes=changes)


def _group_config(name: str, config: GroupConfigView) -> GroupConfig:
    values = {theirs: getattr(config, ours) for ours, theirs in _BROKERS_NAMES.items()}
    return GroupConfig(name, **values)


def _preview_lines(name: str, items: list[BrokerGroupChange], *, preview: bool) -> list[str]:
    says = []
    for one in items:
        if one.before is None:
            says.append(f"{name} {'would be' if preview else 'is'} created at {one.broker}.")
            continue
        says += [
            f"{one.broker}: {change.name.replace('_', ' ')} {str(change.before).lower()} -> "
            f"{str(change.after).lower()}."
            for change in one.changes
        ]
        if one.before.consume_enabled and not one.after.consume_enabled:
            says.append(f"{one.broker}: its consumers receive no more messages.")
    return says or ["No changes."]


@OPERATIONS.delete("/v1/groups/{group}", "delete_group")
async def delete(gateway: Gateway, parameters: GroupDeletion) -> GroupLoss:
    """Delete a group, optionally with its offsets. `preview=true` shows what would be lost."""
    name = parameters.group
    found, missing = await all_groups(gateway, parameters.broker, parameters.cluster)
    brokers = [broker for broker, every in sorted(found.items()) if name in every]
    if not brokers and not parameters.remove_offsets and not missing:
        raise GroupNotFound(f"group {name!r} not found; nothing was deleted")
    lag: int | None = None
    topics: list[str] = []
    members: int | None = None
    try:
        members = (await connected(gateway, name))[0]
        progress = await gateway.admin.offsets.of(name)
        topics = sorted({queue.topic for queue in progress})
        lag = lag_messages(progress)
    except GroupNotFound:
        lag = 0
    except KourouError as error:
        missing = [*missing, Missing(name, why(error))]
    if not parameters.preview:
        await gateway.admin.groups.delete(
            name,
            remove_offsets=parameters.remove_offsets,
            broker=parameters.broker,
            cluster=parameters.cluster,
            reason=parameters.reason,
        )
    will = "would be" if parameters.preview else "is"
    says = [f"{name} {will} deleted at {', '.join(brokers) or 'no broker'}."]
    if parameters.remove_offsets:
        says.append(
            "Its offsets are deleted: if its consumers reconnect, they start like a new group and "
            "may repeat or miss messages."
        )
    else:
        says.append("Its offsets are kept for a group with the same name.")
    if members:
        says.append(
            f"{members} consumers are connected: with automatic group creation, their next "
            "heartbeat creates the group again."
        )
    return GroupLoss(
        group=name,
        preview=parameters.preview,
        says=says,
        members=members,
        lag_messages=lag,
        topics=topics,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )
