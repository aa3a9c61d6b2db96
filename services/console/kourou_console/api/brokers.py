"""Settings of a broker and commands for it; transfer of leadership and promotion of followers.

State: none. Changed settings are events of the broker, with their reason; leaders and epochs are
records of its log.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kourou.errors import BadRequest, DecodeError
from kourou.model.limits import CONSOLE_SETTINGS_MAX
from kourou.protocol.bodies.broker_bodies import SettingView
from kourou_console.api.cluster import BrokerPath, LogReplica, members_of
from kourou_console.api.groups import QueueLag, lag_of
from kourou_console.gateway import Gateway
from kourou_console.lists import (
    LIST_ITEMS,
    Done,
    Limit,
    Listing,
    Missing,
    Name,
    Reason,
    brokers_of,
    cut,
    view_from,
)
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Cluster and brokers")


class BrokerSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One current setting; `configured` is the value of the broker's file, or the default.

    Fields that a RocketMQ broker does not report are null.
    """

    name: str
    value: str
    configured: str | None = None
    changed: bool | None = None
    kind: str | None = None
    about: str | None = None
    changeable: bool | None = None
    why_not: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    choices: list[str] = []


class SettingChange(msgspec.Struct, frozen=True):
    """One setting to change; `refused` is the reason of a refusal."""

    name: str
    before: str | None
    after: str
    refused: str | None


class SettingChanges(Done, frozen=True, kw_only=True):
    """All of them are made, or none."""

    broker: str
    changes: list[SettingChange]


class SettingsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New values as texts, by the names of settings; `reason` goes into the history."""

    settings: Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=CONSOLE_SETTINGS_MAX)]
    reason: Reason = ""


class BrokerChange(msgspec.Struct, frozen=True):
    """The broker; `preview`: only report the effects."""

    broker: Name
    preview: bool = False


class WritePermission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """May producers send to the broker?"""

    writable: bool


class Cleaning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be deleted now."""

    what: Literal["expired_log", "expired_queues", "unused_topics"]


class Period(msgspec.Struct, frozen=True):
    """A counter over a while."""

    sum: int
    per_s: float
    average: float


class Counted(msgspec.Struct, frozen=True):
    """One of RocketMQ's counters."""

    broker: str
    item: str
    key: str
    minute: Period
    hour: Period
    day: Period
    as_of_ms: int


class CounterParameters(msgspec.Struct, frozen=True):
    """`item` like TOPIC_PUT_NUMS, `key` a topic, topic@group, or the cluster's name."""

    broker: Name
    item: Name
    key: Name


class AllProgress(msgspec.Struct, frozen=True):
    """The broker; `ordered`: only ordered topics; `level`: only lags of so many messages."""

    broker: Name
    ordered: bool = False
    level: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    limit: Limit = LIST_ITEMS


class GroupQueueLag(QueueLag, frozen=True, kw_only=True):
    """The same, and whose it is."""

    group: str


@OPERATIONS.get("/v1/brokers/{broker}/config", "broker_config")
async def config(gateway: Gateway, parameters: BrokerPath) -> Listing[BrokerSetting]:
    """Settings of a broker: value, allowed range, changeable at run time."""
    await brokers_of(gateway, parameters.broker)
    found = await _settings(gateway, parameters.broker)
    return Listing(items=found, total=len(found), as_of_ms=gateway.clock.now_ms())


async def _settings(gateway: Gateway, broker: str) -> list[BrokerSetting]:
    try:
        reported = await gateway.admin.brokers.settings(broker)
    except DecodeError:  # other brokers report only values
        values = await gateway.admin.brokers.config(broker)
        return [BrokerSetting(name=name, value=value) for name, value in sorted(values.items())]
    return [_setting(one) for one in sorted(reported, key=lambda one: one.name)]


def _setting(one: SettingView) -> BrokerSetting:
    return view_from(
        BrokerSetting,
        one,
        changed=one.value != one.configured,
        about=one.about or None,
        why_not=one.why_not or None,
        choices=list(one.choices),
    )


@OPERATIONS.patch("/v1/brokers/{broker}/config", "update_broker_config")
async def update_config(
    gateway: Gateway, parameters: BrokerChange, body: SettingsBody
) -> SettingChanges:
    """Change settings of a running broker, all or none. `preview=true` shows what is refused."""
    await brokers_of(gateway, parameters.broker)
    known = {one.name: one for one in await _settings(gateway, parameters.broker)}
    changes = [_change(known.get(name), name, value) for name, value in body.settings.items()]
    says = [
        f"{one.name} {'would become' if parameters.preview else 'is now'} {one.after}"
        if one.refused is None
        else f"{one.name} is not changed: {one.refused}"
        for one in changes
    ]
    if not parameters.preview:
        await gateway.admin.brokers.update_config(
            parameters.broker, body.settings, reason=body.reason
        )
    return SettingChanges(
        broker=parameters.broker,
        preview=parameters.preview,
        says=says,
        changes=changes,
        as_of_ms=gateway.clock.now_ms(),
    )


def _change(one: BrokerSetting | None, name: str, value: str) -> SettingChange:
    if one is None:
        return SettingChange(name, None, value, "unknown setting")
    if one.changeable is False:
        return SettingChange(name, one.value, value, one.why_not)
    refused = None
    if one.choices and value not in one.choices:
        refused = f"write one of {', '.join(one.choices)}"
    elif one.kind == "boolean" and value.strip().lower() not in ("true", "false"):
        refused = "write true or false"
    elif one.kind == "integer":
        refused = _number_refused(one, value.strip())
    return SettingChange(name, one.value, value, refused)


def _number_refused(one: BrokerSetting, text: str) -> str | None:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return "write a whole number"
    low, high = one.minimum, one.maximum
    if (low is not None and int(text) < low) or (high is not None and int(text) > high):
        return f"write {'…' if low is None else low} to {'…' if high is None else high}"
    return None


@OPERATIONS.put("/v1/brokers/{broker}/write-permission", "broker_write_permission")
async def write_permission(
    gateway: Gateway, parameters: BrokerChange, body: WritePermission
) -> Done:
    """Stop or resume writes to a broker, for example before a shutdown."""
    name = parameters.broker
    await brokers_of(gateway, name)
    admin = gateway.admin.brokers
    if not parameters.preview:
        await (admin.add_write_perm(name) if body.writable else admin.wipe_write_perm(name))
    will = "would be" if parameters.preview else "is"
    if body.writable:
        says = [f"{name} {will} writable again once clients have new routes, within 30 s."]
    else:
        says = [
            f"{name} {will} not writable once clients have new routes (up to 40 s).",
            "Consumers are not affected. It lasts until you revert it or the broker restarts.",
        ]
    return Done(preview=parameters.preview, says=says, as_of_ms=gateway.clock.now_ms())


_CLEANED = {
    "expired_log": "deletes log segments older than fileReservedTime now, with their messages",
    "expired_queues": "deletes queue and index files that refer only to deleted messages",
    "unused_topics": "deletes the queues of deleted topics",
}


@OPERATIONS.post("/v1/brokers/{broker}/cleaning", "clean_broker")
async def cleaning(gateway: Gateway, parameters: BrokerChange, body: Cleaning) -> Done:
    """Delete expired log segments, expired queue files, or queues of deleted topics."""
    name = parameters.broker
    await brokers_of(gateway, name)
    admin = gateway.admin.brokers
    if not parameters.preview:
        match body.what:
            case "expired_log":
                await admin.delete_expired_log(name)
            case "expired_queues":
                await admin.clean_expired_queues(name)
            case "unused_topics":
                await admin.clean_unused_topics(name)
    return Done(
        preview=parameters.preview,
        says=[f"{name} {_CLEANED[body.what]}."],
        as_of_ms=gateway.clock.now_ms(),
    )


@OPERATIONS.get("/v1/brokers/{broker}/statistics", "broker_counter")
async def counter(gateway: Gateway, parameters: CounterParameters) -> Counted:
    """One of RocketMQ's counters over the last minute, hour and day."""
    await brokers_of(gateway, parameters.broker)
    found = await gateway.admin.brokers.statistics(
        parameters.broker, parameters.item, parameters.key
    )
    minute, hour, day = (
        Period(one.sum, one.tps, one.avgpt)
        for one in (found.stats_minute, found.stats_hour, found.stats_day)
    )
    return Counted(
        parameters.broker,
        parameters.item,
        parameters.key,
        minute,
        hour,
        day,
        gateway.clock.now_ms(),
    )


@OPERATIONS.get("/v1/brokers/{broker}/groups", "broker_progress")
async def all_progress(gateway: Gateway, parameters: AllProgress) -> Listing[GroupQueueLag]:
    """The offsets of every group in every queue of one broker."""
    await brokers_of(gateway, parameters.broker)
    found = await gateway.admin.offsets.everywhere(
        parameters.broker, ordered_only=parameters.ordered
    )
    rows = [
        GroupQueueLag(group=group, **lag_of(queue, one))
        for group, topics in found.groups.items()
        for topic in topics
        for queue, one in topic.offsets.items()
    ]
    rows = [row for row in rows if row.lag_messages >= parameters.level]
    rows.sort(key=lambda row: (-row.lag_messages, row.group, row.topic, row.queue))
    items, truncated = cut(rows, parameters.limit)
    return Listing(
        items=items, total=len(rows), truncated=truncated, as_of_ms=gateway.clock.now_ms()
    )


class LeaderChange(Done, frozen=True, kw_only=True):
    """Who leads, or would; the epoch it leads in, once it does."""

    broker: str
    leader: str | None
    epoch: int | None
    members: list[LogReplica]


class TransferParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`to` is a member's name or brokerId; by default the most up-to-date replica."""

    to: Annotated[str, msgspec.Meta(max_length=255)] = ""


class Promotion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A follower by its brokerId, or by its registered address.

    `force`: even if the leader is alive, or others have more of the log.
    """

    broker_id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    address: Name | None = None
    force: bool = False


@OPERATIONS.post("/v1/brokers/{broker}/transfer-leader", "transfer_leader")
async def transfer_leader(
    gateway: Gateway, parameters: BrokerChange, body: TransferParams
) -> LeaderChange:
    """Transfer leadership of a Raft group, before its leader is stopped."""
    name = parameters.broker
    await brokers_of(gateway, name)
    members = members_of(await gateway.admin.replicas.of(name))
    if parameters.preview:
        if not any(one.member for one in members):
            raise BadRequest(f"{name} is not a Raft group", hint="promote a follower instead")
        known = {one.member for one in members} | {str(one.registered_id) for one in members}
        if body.to and body.to not in known:
            raise BadRequest(
                f"{name} has no replica {body.to!r}",
                hint=f"members: {', '.join(sorted(one for one in known if one))}",
            )
        says = [
            f"{body.to or 'The most up-to-date replica'} would lead {name} in place of "
            f"{_leader(members) or 'an unknown leader'}.",
            "Sends pause briefly; no acknowledged message is lost.",
        ]
        return _response(gateway, name, says, members, preview=True)
    result = await gateway.admin.replicas.transfer_leader(name, body.to)
    members = members_of(await gateway.admin.replicas.of(name))
    says = [f"{result.leader or result.member} leads {name} in epoch {result.epoch}."]
    return _response(gateway, name, says, members)


@OPERATIONS.post("/v1/brokers/{broker}/promote", "promote")
async def promote(gateway: Gateway, parameters: BrokerChange, body: Promotion) -> LeaderChange:
    """Promote a follower to leader. `preview=true` shows what would be lost."""
    name = parameters.broker
    await brokers_of(gateway, name)
    if (body.broker_id is None) == (body.address is None):
        raise BadRequest("no replica was named", hint="its broker_id, or its address")
    members = members_of(await gateway.admin.replicas.of(name))
    if body.address is not None and all(one.address != body.address for one in members):
        # A console connects to no address that its callers name.
        raise BadRequest(
            f"no replica of {name} is registered at {body.address}",
            hint=f"registered: {', '.join(one.address for one in members)}; for another address "
            "use the command line: kourou admin promote",
        )
    if parameters.preview:
        return _response(gateway, name, _promoted(name, members, body), members, preview=True)
    result = await gateway.admin.replicas.promote(
        name, body.broker_id, address=body.address, force=body.force
    )
    members = members_of(await gateway.admin.replicas.of(name))
    return _response(
        gateway, name, [f"{result.leader} leads {name} in epoch {result.epoch}."], members
    )


def _promoted(name: str, members: list[LogReplica], body: Promotion) -> list[str]:
    """The expected effects, from what the replicas report."""
    chosen = next(
        (
            one
            for one in members
            if one.address == body.address or one.registered_id == body.broker_id
        ),
        None,
    )
    if chosen is None:
        raise BadRequest(
            f"no replica of {name} is registered with brokerId {body.broker_id}",
            hint=f"registered: {', '.join(str(one.registered_id) for one in members)}",
        )
    says = []
    if any(one.member for one in members):
        says.append("It is refused: a Raft group elects its leader; transfer leadership instead.")
    alive = [one for one in members if one.role == "leader" and one is not chosen]
    if alive:
        says.append(
            f"The leader at {alive[0].address} is online: "
            + (
                "it would be replaced, and messages it still acknowledges would be lost."
                if body.force
                else "it is refused without force."
            )
        )
    ends = [one.end for one in members if one.end is not None and one is not chosen]
    if chosen.end is not None and ends and max(ends) > chosen.end:
        says.append(
            f"{max(ends) - chosen.end:,} bytes of the log that only another replica has would be "
            "lost."
        )
    what = body.address or f"brokerId {body.broker_id}"
    says.append(f"{what} would lead {name} in a new epoch; the old leader would become a follower.")
    return says


def _leader(members: list[LogReplica]) -> str | None:
    return next((one.member or one.address for one in members if one.role == "leader"), None)


def _response(
    gateway: Gateway,
    name: str,
    says: list[str],
    members: list[LogReplica],
    *,
    preview: bool = False,
) -> LeaderChange:
    return LeaderChange(
        broker=name,
        preview=preview,
        says=says,
        leader=_leader(members),
        epoch=max((one.epoch for one in members if one.epoch is not None), default=None),
        members=members,
        as_of_ms=gateway.clock.now_ms(),
        missing=[Missing(one.address, one.why or "") for one in members if one.role is None],
    )
