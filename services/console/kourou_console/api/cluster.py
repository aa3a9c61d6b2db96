"""Clusters, their brokers with leaders and replicas, quotas, and the name servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

import msgspec

from kourou.access.requirements import INTERNAL_NAMESPACE
from kourou.client.admin.replicas import NOT_THERE, LogMember, absent
from kourou.errors import KourouError, NoPermission, Unavailable
from kourou.model.limits import CONSOLE_SETTINGS_MAX, GATEWAY_LINE_BYTES_MAX, QUOTA_LIMIT_MAX
from kourou.model.names import ORDER_NAMESPACE
from kourou.model.quota import Quota, QuotaUnit, check_quota, check_quota_name, quota_kind
from kourou.protocol.bodies.broker_bodies import ReplicasView
from kourou.time_limit import within
from kourou_console.api.overview import BrokerFigures, broker_figures
from kourou_console.gateway import Gateway
from kourou_console.lists import (
    LIST_ITEMS,
    LOOK_S,
    Done,
    Limit,
    Listing,
    Missing,
    Name,
    Preview,
    Reason,
    asked,
    brokers_of,
    cut,
    view_from,
    why,
)
from kourou_console.metrics.broker_runtime import Runtime, runtime_of
from kourou_console.metrics.sampler import Sampler
from kourou_console.operation import Chapter, NoParameters

OPERATIONS = Chapter("Cluster and brokers")
QUOTA_OPERATIONS = Chapter("Quotas")
NAME_SERVER_OPERATIONS = Chapter("Name servers")

CANDIDATE = "candidate"
MISSING = "missing"


class Epoch(msgspec.Struct, frozen=True):
    """From which position of the log on an epoch is in force."""

    epoch: int
    begins_at: int


class LogReplica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a broker's log, with positions in bytes.

    `why`: it did not reply, or has a problem. `role` is leader, follower, candidate, fenced, or
    missing: the replica belongs to the Raft group but is not registered at any name server, so
    `address` is empty. `member` is its name in a Raft group.
    """

    broker: str
    registered_id: int
    address: str
    role: str | None
    state: str | None = None
    member: str | None = None
    epoch: int | None = None
    first: int | None = None
    end: int | None = None
    flushed: int | None = None
    confirmed: int | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    in_sync: bool | None = None
    epochs: list[Epoch] = []
    why: str | None = None


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """One broker name: a log with its leader and replicas.

    `replication` is none, replicas or raft. `writable`: routes offer it to producers.
    """

    broker: str
    cluster: str | None
    up: bool
    why: str | None
    version: str | None
    started_at_ms: int | None
    members: list[LogReplica]
    replication: str | None
    leader: str | None
    epoch: int | None
    writable: bool | None
    messages_in_today: int | None
    messages_out_today: int | None
    figures: BrokerFigures | None
    disk_total_bytes: int | None
    disk_free_bytes: int | None
    disk_level: str | None
    as_of_ms: int
    missing: list[Missing] = []


class OneCluster(msgspec.Struct, frozen=True):
    """A cluster's brokers, by name."""

    cluster: str
    brokers: list[Broker]


class ClusterAnswer(msgspec.Struct, frozen=True):
    """All clusters registered at the name servers."""

    clusters: list[OneCluster]
    as_of_ms: int
    missing: list[Missing]


class RuntimeAnswer(msgspec.Struct, frozen=True):
    """The status of a broker: `raw` under RocketMQ's names, `figures` as sampled."""

    broker: str
    figures: BrokerFigures | None
    raw: dict[str, str]
    as_of_ms: int
    missing: list[Missing] = []


class BrokerPath(msgspec.Struct, frozen=True):
    """The broker."""

    broker: Name


@OPERATIONS.get("/v1/cluster", "cluster")
async def cluster(gateway: Gateway, _parameters: NoParameters) -> ClusterAnswer:
    """All clusters with brokers, leaders and replicas, queried now."""
    info = await gateway.admin.cluster.info()
    found, missing = await _brokers(gateway, sorted(info.brokers))
    clusters = [
        OneCluster(name, [found[one] for one in sorted(names) if one in found])
        for name, names in sorted(info.clusters.items())
    ]
    return ClusterAnswer(clusters, gateway.clock.now_ms(), missing)


@OPERATIONS.get("/v1/brokers", "brokers")
async def brokers(gateway: Gateway, _parameters: NoParameters) -> Listing[Broker]:
    """All brokers as one list."""
    found, missing = await _brokers(gateway, await brokers_of(gateway))
    items = [found[name] for name in sorted(found)]
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms(), missing=missing)


@OPERATIONS.get("/v1/brokers/{broker}", "broker")
async def broker(gateway: Gateway, parameters: BrokerPath) -> Broker:
    """One broker: replicas, epoch, disk, rates."""
    await brokers_of(gateway, parameters.broker)
    found, missing = await _brokers(gateway, [parameters.broker])
    if parameters.broker not in found:
        raise Unavailable(f"{missing[0].what}: {missing[0].why}")
    return found[parameters.broker]


@OPERATIONS.get("/v1/brokers/{broker}/replicas", "broker_replicas")
async def replicas(gateway: Gateway, parameters: BrokerPath) -> Listing[LogReplica]:
    """Replicas of a broker's log: role, epoch, end and lag, reported by each."""
    await brokers_of(gateway, parameters.broker)
    members = every_member(await gateway.admin.replicas.of(parameters.broker))
    missing = [
        Missing(one.address or one.member or "", one.why or "")
        for one in members
        if one.role in (None, MISSING)
    ]
    return Listing(
        items=members, total=len(members), as_of_ms=gateway.clock.now_ms(), missing=missing
    )


@OPERATIONS.get("/v1/brokers/{broker}/runtime", "broker_runtime")
async def runtime(gateway: Gateway, parameters: BrokerPath) -> RuntimeAnswer:
    """A broker's runtime table under RocketMQ's names, and its last sample."""
    await brokers_of(gateway, parameters.broker)
    raw = await gateway.admin.brokers.runtime(parameters.broker)
    sampled = gateway.part(Sampler).brokers.get(parameters.broker)
    figures = None if sampled is None else broker_figures(sampled)
    return RuntimeAnswer(
        parameters.broker, figures, dict(sorted(raw.items())), gateway.clock.now_ms()
    )


# -- building the responses -----------------------------------------------------------------------


async def _brokers(gateway: Gateway, names: list[str]) -> tuple[dict[str, Broker], list[Missing]]:
    info = await gateway.admin.cluster.info()
    clusters = {one: name for name, every in info.clusters.items() for one in every}

    async def look(name: str) -> Broker:
        return await _broker(gateway, name, clusters)

    found, missing = await asked(names, look, limit_s=2 * LOOK_S)
    away = [Missing(one.broker, one.why or "") for one in found.values() if not one.up]
    return found, [*missing, *away]


async def _broker(gateway: Gateway, name: str, clusters: Mapping[str, str]) -> Broker:
    """One broker: its replicas, its leader's metrics and its routes, requested concurrently."""
    admin = gateway.admin
    members, table, writable = await asyncio.gather(
        within(admin.replicas.of(name), LOOK_S),
        within(admin.brokers.runtime(name), LOOK_S),
        within(admin.brokers.writable(name), LOOK_S),
        return_exceptions=True,
    )
    now_ms = gateway.clock.now_ms()
    missing = []
    reported: list[LogMember] = []
    if isinstance(members, BaseException):
        missing.append(Missing(f"replicas of {name}", why(members)))
    else:
        reported = members
    trouble = why(table) if isinstance(table, BaseException) else None
    seen: Runtime | None = None if isinstance(table, BaseException) else runtime_of(table, now_ms)
    leading = _leading(reported)
    sampled = gateway.part(Sampler).brokers.get(name)
    return Broker(
        broker=name,
        cluster=clusters.get(name),
        up=seen is not None,
        why=trouble,
        version=None if seen is None else seen.version,
        started_at_ms=None if seen is None else seen.started_ms,
        members=every_member(reported),
        replication=_replication(reported),
        leader=None if leading is None else leading.address,
        epoch=None if leading is None or leading.view is None else leading.view.epoch,
        writable=None if isinstance(writable, BaseException) else writable,
        messages_in_today=None if seen is None else seen.messages_in_today,
        messages_out_today=None if seen is None else seen.messages_out_today,
        figures=None if sampled is None else broker_figures(sampled),
        disk_total_bytes=None if seen is None else seen.disk_total_bytes,
        disk_free_bytes=None if seen is None else seen.disk_free_bytes,
        disk_level=None if seen is None else seen.disk_level,
        as_of_ms=now_ms,
        missing=missing,
    )


def _leading(members: list[LogMember]) -> LogMember | None:
    """The replica that reports to be the leader, in the newest epoch."""
    leaders = [one for one in members if one.view is not None and one.view.leads]
    leaders = [one for one in leaders if one.view is not None and not one.view.fenced] or leaders
    return max(leaders, key=lambda one: one.view.epoch if one.view else 0, default=None)


def _replication(members: list[LogMember]) -> str | None:
    reported = [one.view for one in members if one.view is not None]
    if not reported:
        return None
    if any(one.member for one in reported):
        return "raft"
    alone = len(members) == 1 and not reported[0].followers and not reported[0].epoch
    return "none" if alone else "replicas"


def members_of(members: list[LogMember]) -> list[LogReplica]:
    """The replicas as response items, with the leader's information about its followers."""
    leader = _leading(members)
    return [_member(one, None if leader is None else leader.view) for one in members]


def every_member(members: list[LogMember]) -> list[LogReplica]:
    """The replicas, then the nodes of their Raft group that are not registered."""
    gone = [
        LogReplica(
            broker=leader.broker_name,
            registered_id=one.broker_id,
            address="",
            role=MISSING,
            member=one.member,
            lag_bytes=one.lag_bytes,
            why=f"it {NOT_THERE}",
        )
        for leader, one in absent(members)
    ]
    return [*members_of(members), *gone]


def _member(one: LogMember, leader: ReplicasView | None) -> LogReplica:
    reported = one.view
    if reported is None:
        text = "it does not respond" if one.error is None else str(one.error)
        return LogReplica(
            broker=one.broker_name,
            registered_id=one.registered_id,
            address=one.address,
            role=None,
            why=text,
        )
    seen = next(
        (f for f in (leader.followers if leader else ()) if f.broker_id == reported.broker_id), None
    )
    role = "fenced" if reported.fenced else "leader" if reported.leads else "follower"
    if reported.member and reported.state.lower() == CANDIDATE:
        role = "candidate"
    reason = reported.reason or None
    if reported.fenced:
        reason = f"replaced by a leader with epoch {reported.fenced}; it accepts no more messages"
    return LogReplica(
        broker=one.broker_name,
        registered_id=one.registered_id,
        address=one.address,
        role=role,
        state=reported.state or (seen.state if seen and not reported.leads else None) or None,
        member=reported.member or None,
        epoch=reported.epoch,
        first=reported.first,
        end=reported.end,
        flushed=reported.flushed,
        confirmed=reported.confirmed,
        lag_bytes=seen.lag_bytes if seen and reported.lag_bytes is None else reported.lag_bytes,
        lag_ms=seen.lag_ms if seen and reported.lag_ms is None else reported.lag_ms,
        in_sync=None if seen is None or reported.leads or reported.member else seen.in_sync,
        epochs=[Epoch(epoch, begins) for epoch, begins in reported.epochs],
        why=reason,
    )


class NameServer(msgspec.Struct, frozen=True, kw_only=True):
    """A name server as the console dials it; `settings` null: it does not answer, see `why`."""

    address: str
    up: bool
    why: str | None
    settings: dict[str, str] | None


class KeyValue(msgspec.Struct, frozen=True):
    """One key of a namespace."""

    namespace: str
    key: str
    value: str


class ValuesWanted(msgspec.Struct, frozen=True):
    """The keys of one namespace; by default RocketMQ's namespace for settings of ordered topics."""

    namespace: Name = ORDER_NAMESPACE


class KeyPath(msgspec.Struct, frozen=True):
    """The key; `preview`: only report the effects."""

    namespace: Name
    key: Name
    preview: bool = False


class ValueBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its value."""

    value: Annotated[str, msgspec.Meta(max_length=GATEWAY_LINE_BYTES_MAX)]


class NameServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New values as texts, by the names of settings."""

    settings: Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=CONSOLE_SETTINGS_MAX)]


@NAME_SERVER_OPERATIONS.get("/v1/name-servers", "name_servers")
async def name_servers(gateway: Gateway, _parameters: NoParameters) -> Listing[NameServer]:
    """All name servers with state and settings."""
    found = await gateway.admin.name_servers.each()
    items, missing = [], []
    for address, one in found.items():
        trouble = str(one) if isinstance(one, KourouError) else None
        settings = None if isinstance(one, KourouError) else dict(sorted(one.items()))
        items.append(
            NameServer(address=address, up=trouble is None, why=trouble, settings=settings)
        )
        if trouble is not None:
            missing.append(Missing(address, trouble))
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms(), missing=missing)


@NAME_SERVER_OPERATIONS.patch("/v1/name-servers/config", "update_name_servers")
async def update(gateway: Gateway, parameters: Preview, body: NameServerSettings) -> Done:
    """Change run-time settings of all name servers; none can be changed in this version."""
    if not parameters.preview:
        await gateway.admin.name_servers.update_settings(body.settings)
    will = "would be" if parameters.preview else "is"
    return Done(
        preview=parameters.preview,
        says=[
            f"{name} {will} {value}. Read-only settings are refused."
            for name, value in body.settings.items()
        ],
        as_of_ms=gateway.clock.now_ms(),
    )


@NAME_SERVER_OPERATIONS.get("/v1/name-servers/values", "name_server_values")
async def values(gateway: Gateway, parameters: ValuesWanted) -> Listing[KeyValue]:
    """The keys of a namespace and their values."""
    found = await gateway.admin.name_servers.list(parameters.namespace)
    items = [KeyValue(parameters.namespace, key, value) for key, value in sorted(found.items())]
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms())


@NAME_SERVER_OPERATIONS.put("/v1/name-servers/values/{namespace}/{key}", "put_name_server_value")
async def put_value(gateway: Gateway, parameters: KeyPath, body: ValueBody) -> Done:
    """Set a key of a namespace at every name server."""
    return await _set_value(gateway, parameters, body.value)


@NAME_SERVER_OPERATIONS.delete(
    "/v1/name-servers/values/{namespace}/{key}", "delete_name_server_value"
)
async def delete_value(gateway: Gateway, parameters: KeyPath) -> Done:
    """Remove a key of a namespace, at every name server."""
    return await _set_value(gateway, parameters, None)


async def _set_value(gateway: Gateway, place: KeyPath, value: str | None) -> Done:
    """Set a key, or remove it; a missing key is not an error."""
    if gateway.user and place.namespace.startswith(INTERNAL_NAMESPACE):
        raise NoPermission(
            f"namespaces that begin with {INTERNAL_NAMESPACE} belong to brokers and name servers",
            hint="a console changes them for no user; use kourou admin",
        )
    admin = gateway.admin.name_servers
    before = await admin.get(place.namespace, place.key)
    if not place.preview:
        if value is None:
            await admin.delete(place.namespace, place.key)
        else:
            await admin.put(place.namespace, place.key, value)
    will = "would be" if place.preview else "is"
    was = "It was not there." if before is None else f"It was {before}."
    return Done(
        preview=place.preview,
        says=[
            f"{place.namespace}/{place.key} {will} {'removed' if value is None else value}.",
            was,
        ],
        as_of_ms=gateway.clock.now_ms(),
    )


# -- quotas ---------------------------------------------------------------------------------------

QuotaLimit = Annotated[int, msgspec.Meta(ge=1, le=QUOTA_LIMIT_MAX)]


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """What a user, topic or group may use of each of these brokers a second; null: not limited.

    `connections` is the number that a user may have open, `topics` and `groups` the numbers that it
    may have created, `stored_bytes` what a topic, or all topics of a user, may have in the log.

    The name `*` stands for all of a kind that have no quota of their own.
    """

    kind: str
    name: str
    publish_bytes: int | None
    publish_messages: int | None
    fetch_bytes: int | None
    fetch_messages: int | None
    requests: int | None
    connections: int | None
    topics: int | None
    groups: int | None
    stored_bytes: int | None
    brokers: list[str]


class QuotasWanted(msgspec.Struct, frozen=True):
    """How many."""

    limit: Limit = LIST_ITEMS


class QuotaPath(msgspec.Struct, frozen=True):
    """`kind`: user, topic or group; `preview`: only report the effects."""

    kind: Name
    name: Name
    preview: bool = False


class QuotaBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits per second; what is not named is not limited. Groups have limits of fetches.

    `connections`: how many a user may have open at each broker; `topics`, `groups`: how many it may
    have created there; `stored_bytes`: what a topic, or a user's topics, may have in the log there.
    """

    publish_bytes: QuotaLimit | None = None
    publish_messages: QuotaLimit | None = None
    fetch_bytes: QuotaLimit | None = None
    fetch_messages: QuotaLimit | None = None
    requests: QuotaLimit | None = None
    connections: QuotaLimit | None = None
    topics: QuotaLimit | None = None
    groups: QuotaLimit | None = None
    stored_bytes: QuotaLimit | None = None
    reason: Reason = ""


class QuotaDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """`kind`: user, topic or group; `preview`: only report the effects."""

    kind: Name
    name: Name
    preview: bool = False
    reason: Reason = ""


@QUOTA_OPERATIONS.get("/v1/quotas", "quotas")
async def quotas(gateway: Gateway, parameters: QuotasWanted) -> Listing[QuotaView]:
    """Quotas of users, topics and groups; a quota that brokers have differently is listed twice."""
    found = await gateway.admin.quotas.list()
    brokers: dict[Quota, list[str]] = {}
    for broker, every in sorted(found.items()):
        for one in every:
            brokers.setdefault(one, []).append(broker)
    shown, truncated = cut(sorted(brokers, key=lambda one: one.key), parameters.limit)
    return Listing(
        items=[view_from(QuotaView, one, brokers=brokers[one]) for one in shown],
        total=None if found.missing else len(brokers),
        truncated=truncated,
        as_of_ms=gateway.clock.now_ms(),
        missing=[Missing(broker, why(error)) for broker, error in found.missing.items()],
    )


@QUOTA_OPERATIONS.put("/v1/quotas/{kind}/{name}", "put_quota")
async def put_quota(gateway: Gateway, parameters: QuotaPath, body: QuotaBody) -> Done:
    """Limit a user, topic or group at every broker; it replaces the quota as a whole."""
    wanted: dict[str, int | None] = {one.value: getattr(body, one) for one in QuotaUnit}
    quota = check_quota(Quota(kind=quota_kind(parameters.kind), name=parameters.name, **wanted))
    limits = {unit.value: limit for unit, limit in quota.limits().items()}
    if not parameters.preview:
        await gateway.admin.quotas.set(quota.kind, quota.name, reason=body.reason, **limits)
    will = "would be" if parameters.preview else "is"
    said = ", ".join(unit.amount(limit) for unit, limit in quota.limits().items())
    text = f"{quota.kind} {quota.name} {will} limited to {said} at each broker."
    if not limits:
        text = f"{quota.kind} {quota.name} {will} not limited."
    return Done(preview=parameters.preview, says=[text], as_of_ms=gateway.clock.now_ms())


@QUOTA_OPERATIONS.delete("/v1/quotas/{kind}/{name}", "delete_quota")
async def delete_quota(gateway: Gateway, parameters: QuotaDeletion) -> Done:
    """Remove a quota at every broker; that of `*` applies from then on."""
    kind, name = quota_kind(parameters.kind), parameters.name
    check_quota_name(kind, name)
    if not parameters.preview:
        await gateway.admin.quotas.remove(kind, name, reason=parameters.reason)
    will = "would be" if parameters.preview else "is"
    return Done(
        preview=parameters.preview,
        says=[f"The quota of {kind} {name} {will} removed."],
        as_of_ms=gateway.clock.now_ms(),
    )
