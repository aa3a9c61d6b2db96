"""Brokers and clusters, with their leaders, replicas and status."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from kourou.client.admin.replicas import NOT_THERE, LogMember, absent
from kourou.errors import Unavailable
from kourou.protocol.bodies.replicas_body import ReplicasView
from kourou_console.api.overview import BrokerFigures, broker_figures
from kourou_console.gateway import Gateway
from kourou_console.lists import (
    LOOK_S,
    Listing,
    Missing,
    Name,
    asked,
    brokers_of,
    why,
)
from kourou_console.metrics.broker_runtime import Runtime, runtime_of
from kourou_console.metrics.sampler import Sampler
from kourou_console.operation import NoParameters, Operation

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


async def cluster(gateway: Gateway, _parameters: NoParameters) -> ClusterAnswer:
    """Every broker of every cluster."""
    info = await gateway.admin.cluster.info()
    found, missing = await _brokers(gateway, sorted(info.brokers))
    clusters = [
        OneCluster(name, [found[one] for one in sorted(names) if one in found])
        for name, names in sorted(info.clusters.items())
    ]
    return ClusterAnswer(clusters, gateway.clock.now_ms(), missing)


async def brokers(gateway: Gateway, _parameters: NoParameters) -> Listing[Broker]:
    """The brokers as one list."""
    found, missing = await _brokers(gateway, await brokers_of(gateway))
    items = [found[name] for name in sorted(found)]
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms(), missing=missing)


async def broker(gateway: Gateway, parameters: BrokerPath) -> Broker:
    """One broker."""
    await brokers_of(gateway, parameters.broker)
    found, missing = await _brokers(gateway, [parameters.broker])
    if parameters.broker not in found:
        raise Unavailable(f"{missing[0].what}: {missing[0].why}")
    return found[parameters.broker]


async def replicas(gateway: Gateway, parameters: BrokerPath) -> Listing[LogReplica]:
    """Every replica of a broker's log, as reported by itself."""
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


async def runtime(gateway: Gateway, parameters: BrokerPath) -> RuntimeAnswer:
    """A broker's runtime table."""
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
        asyncio.wait_for(admin.replicas.of(name), LOOK_S),
        asyncio.wait_for(admin.brokers.runtime(name), LOOK_S),
        asyncio.wait_for(admin.brokers.writable(name), LOOK_S),
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
        epoch=None if leading is None or leading.told is None else leading.told.epoch,
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
    leaders = [one for one in members if one.told is not None and one.told.leads]
    leaders = [one for one in leaders if one.told is not None and not one.told.fenced] or leaders
    return max(leaders, key=lambda one: one.told.epoch if one.told else 0, default=None)


def _replication(members: list[LogMember]) -> str | None:
    reported = [one.told for one in members if one.told is not None]
    if not reported:
        return None
    if any(one.member for one in reported):
        return "raft"
    alone = len(members) == 1 and not reported[0].followers and not reported[0].epoch
    return "none" if alone else "replicas"


def members_of(members: list[LogMember]) -> list[LogReplica]:
    """The replicas as response items, with the leader's information about its followers."""
    leader = _leading(members)
    return [_member(one, None if leader is None else leader.told) for one in members]


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
    reported = one.told
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


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/cluster",
        "cluster",
        "All clusters with brokers, leaders and replicas, queried now.",
        "Cluster and brokers",
        cluster,
        ClusterAnswer,
    ),
    Operation(
        "GET",
        "/v1/brokers",
        "brokers",
        "All brokers as one list.",
        "Cluster and brokers",
        brokers,
        Listing[Broker],
    ),
    Operation(
        "GET",
        "/v1/brokers/{broker}",
        "broker",
        "One broker: replicas, epoch, disk, rates.",
        "Cluster and brokers",
        broker,
        Broker,
        BrokerPath,
    ),
    Operation(
        "GET",
        "/v1/brokers/{broker}/replicas",
        "broker_replicas",
        "Replicas of a broker's log: role, epoch, end and lag, reported by each.",
        "Cluster and brokers",
        replicas,
        Listing[LogReplica],
        BrokerPath,
    ),
    Operation(
        "GET",
        "/v1/brokers/{broker}/runtime",
        "broker_runtime",
        "A broker's runtime table under RocketMQ's names, and its last sample.",
        "Cluster and brokers",
        runtime,
        RuntimeAnswer,
        BrokerPath,
    ),
)
