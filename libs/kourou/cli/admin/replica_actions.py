"""The actions of the commands for replicas: one or a few requests, one report."""

from __future__ import annotations

from typing import Any

from kourou.cli.admin.actions import broker_name
from kourou.cli.admin.report import Report
from kourou.client.admin.replicas import NOT_THERE, LogMember, absent, leaders_of
from kourou.engine.roles.leader import ASYNC_MASTER, SYNC_MASTER
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou.replication.in_sync import named
from kourou.sync import Client

COLUMNS = (
    *("cluster", "broker", "id", "role", "address", "epoch", "end"),
    *("lag bytes", "lag s", "in sync", "state"),
)


def replicas(client: Client, broker: str | None, cluster: str | None) -> Report:
    """Every replica of every log; the lag of a follower is what its leader reports, if there is
    one.
    """
    name = None if broker is None else broker_name(client, broker)
    members: list[LogMember] = client.admin.replicas.of(name, cluster)
    leaders = leaders_of(members)
    rows = [_row(one, leaders.get(one.broker_name)) for one in members]
    missing = [
        (leader.cluster, leader.broker_name, one.member, "-", "-", None, None, one.lag_bytes,
         None, None, NOT_THERE)
        for leader, one in absent(members)
    ]  # fmt: skip
    remarks = []
    for which in sorted({one.broker_name for one in members}):
        leader = leaders.get(which)
        if leader is None:
            remarks.append(f"{which} has no leader: it accepts no messages")
        elif leader.followers or leader.in_sync:
            waits = f"; in sync: {named(leader.in_sync)}" if _waits(leader) else ""
            kind = "of its Raft group" if leader.member else f"as {leader.broker_role}"
            leads = f"{leader.leader} leads epoch {leader.epoch} {kind}"
            remarks.append(f"{which}: {leads}{waits}")
    remarks += [
        f"{one.address}: {one.told.reason}" for one in members if one.told and one.told.reason
    ]
    amiss = (
        bool(missing)
        or len(leaders) < len({one.broker_name for one in members})
        or any(
            one.told is None or one.told.fenced or one.told.state == "REFUSED" for one in members
        )
    )
    return Report(COLUMNS, [*rows, *missing], remarks, failed=amiss)


def _row(one: LogMember, leader: ReplicasView | None) -> tuple[Any, ...]:
    told = one.told
    if told is None:
        return ("-", one.broker_name, one.registered_id, "-", one.address,
                *(None, None, None, None, None), f"does not answer: {one.error}")  # fmt: skip
    start = (told.cluster, one.broker_name, told.member or told.broker_id)
    if told.leads:
        role, state = told.broker_role or ASYNC_MASTER, ""
        if told.member:
            role = "leader"
        if told.fenced:
            role, state = "fenced", f"replaced by epoch {told.fenced}"
        return (*start, role, one.address, told.epoch, told.end, None, None, None, state)
    seen = _seen(told, leader)
    lag_bytes = told.lag_bytes if seen is None else seen.lag_bytes
    lag_ms = told.lag_ms if seen is None else seen.lag_ms
    in_sync = told.broker_id in leader.in_sync if leader is not None and _waits(leader) else None
    lag_s = None if lag_ms is None else round(lag_ms / 1_000, 1)
    role, state = "SLAVE", told.state
    if told.member:
        role, state = told.state, "" if seen is None else seen.state
    return (*start, role, one.address, told.epoch, told.end, lag_bytes, lag_s, in_sync, state)


def _waits(leader: ReplicasView) -> bool:
    """True if senders wait for in-sync followers, so that the in-sync state matters."""
    return leader.broker_role == SYNC_MASTER and not leader.member


def _seen(told: ReplicasView, leader: ReplicasView | None) -> FollowerView | None:
    followers = () if leader is None else leader.followers
    return next((one for one in followers if one.broker_id == told.broker_id), None)


def promote(
    client: Client, broker: str, broker_id: int | None, *, address: str | None, force: bool
) -> Report:
    """Promote a follower to leader, and report its new status."""
    told: ReplicasView = client.admin.replicas.promote(
        broker_name(client, broker), broker_id, address=address, force=force
    )
    rows = [(told.broker_name, told.broker_id, told.broker_role, told.epoch, told.end)]
    remarks = ["restart the old leader as a follower with an unused brokerId"]
    return Report(("broker", "id", "role", "epoch", "end"), rows, remarks)


def transfer_leader(client: Client, broker: str, to: str) -> Report:
    """Transfer leadership of a Raft group, and report the new leader."""
    told: ReplicasView = client.admin.replicas.transfer_leader(broker_name(client, broker), to)
    rows = [(told.broker_name, told.member, told.epoch, told.end)]
    return Report(("broker", "leader", "epoch", "end"), rows)
