"""`kourou admin`: the commands for replicas and leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.brokers import broker_name
from kourou.cli.admin.command import OneBroker, OneCluster, Switch, command
from kourou.cli.admin.report import Report

if TYPE_CHECKING:
    from kourou.client.admin.replicas import LogMember
    from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
    from kourou.sync import Client

COLUMNS = (
    *("cluster", "broker", "id", "role", "address", "epoch", "end"),
    *("lag bytes", "lag s", "in sync", "state"),
)

BrokerName = Annotated[str, typer.Option("-b", "--broker", "--brokerName", help="The broker name.")]


@command("replicas", "Show leaders, followers and replication lag.", repeats=True)
def replicas(client: Client, *, broker: OneBroker = None, cluster: OneCluster = None) -> Report:
    """Show roles, epochs, positions and lag of all replicas; exit code 1 if one is unhealthy."""
    from kourou.client.admin.replicas import NOT_THERE, absent, leaders_of
    from kourou.replication.progress import named

    # The lag of a follower is what its leader reports, if there is one.
    name = None if broker is None else broker_name(client, broker)
    found: list[LogMember] = client.admin.replicas.of(name, cluster)
    leaders = leaders_of(found)
    rows = [_row(one, leaders.get(one.broker_name)) for one in found]
    missing = [
        (leader.cluster, leader.broker_name, one.member, "-", "-", None, None, one.lag_bytes,
         None, None, NOT_THERE)
        for leader, one in absent(found)
    ]  # fmt: skip
    remarks = []
    for which in sorted({one.broker_name for one in found}):
        leader = leaders.get(which)
        if leader is None:
            remarks.append(f"{which} has no leader: it accepts no messages")
        elif leader.followers or leader.in_sync:
            in_sync = f"; in sync: {named(leader.in_sync)}" if _waits(leader) else ""
            kind = "of its Raft group" if leader.member else f"as {leader.broker_role}"
            leads = f"{leader.leader} leads epoch {leader.epoch} {kind}"
            remarks.append(f"{which}: {leads}{in_sync}")
    remarks += [
        f"{one.address}: {one.view.reason}" for one in found if one.view and one.view.reason
    ]
    unhealthy = (
        bool(missing)
        or len(leaders) < len({one.broker_name for one in found})
        or any(one.view is None or one.view.fenced or one.view.state == "REFUSED" for one in found)
    )
    return Report(COLUMNS, [*rows, *missing], remarks, failed=unhealthy)


def _row(one: LogMember, leader: ReplicasView | None) -> tuple[Any, ...]:
    from kourou.engine.roles.leader import ASYNC_MASTER

    status = one.view
    if status is None:
        return ("-", one.broker_name, one.registered_id, "-", one.address,
                *(None, None, None, None, None), f"does not answer: {one.error}")  # fmt: skip
    start = (status.cluster, one.broker_name, status.member or status.broker_id)
    if status.leads:
        role, state = status.broker_role or ASYNC_MASTER, ""
        if status.member:
            role = "leader"
        if status.fenced:
            role, state = "fenced", f"replaced by epoch {status.fenced}"
        return (*start, role, one.address, status.epoch, status.end, None, None, None, state)
    seen = _seen_by(leader, status)
    lag_bytes = status.lag_bytes if seen is None else seen.lag_bytes
    lag_ms = status.lag_ms if seen is None else seen.lag_ms
    in_sync = status.broker_id in leader.in_sync if leader is not None and _waits(leader) else None
    lag_s = None if lag_ms is None else round(lag_ms / 1_000, 1)
    role, state = "SLAVE", status.state
    if status.member:
        role, state = status.state, "" if seen is None else seen.state
    return (*start, role, one.address, status.epoch, status.end, lag_bytes, lag_s, in_sync, state)


def _waits(leader: ReplicasView) -> bool:
    """True if senders wait for in-sync followers, so that the in-sync state matters."""
    from kourou.engine.roles.leader import SYNC_MASTER

    return leader.broker_role == SYNC_MASTER and not leader.member


def _seen_by(leader: ReplicasView | None, follower: ReplicasView) -> FollowerView | None:
    """A follower's status as its leader reports it."""
    followers = () if leader is None else leader.followers
    return next((one for one in followers if one.broker_id == follower.broker_id), None)


@command("promote", "Promote a follower to leader.")
def promote(
    client: Client,
    broker: BrokerName,
    broker_id: Annotated[
        int | None, typer.Option("-i", "--brokerId", min=1, max=63, help="The follower's brokerId.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "-a", "--address", help="The follower's address, if it is no longer registered."
        ),
    ] = None,
    force: Annotated[
        Switch,
        typer.Option(
            "-f", "--force", help="Even if the leader is online or another follower has more data."
        ),
    ] = Switch.FALSE,
) -> Report:
    """Promote a follower to leader in a new epoch; refused while the old leader is online.

    Stop the old leader first, and bring it back as a follower. With --force what the follower
    lacks, and what the old leader still acknowledges, is lost.
    """
    status: ReplicasView = client.admin.replicas.promote(
        broker_name(client, broker), broker_id, address=address, force=force.on
    )
    rows = [(status.broker_name, status.broker_id, status.broker_role, status.epoch, status.end)]
    remarks = ["restart the old leader as a follower with an unused brokerId"]
    return Report(("broker", "id", "role", "epoch", "end"), rows, remarks)


@command("transfer-leader", "Transfer leadership of a Raft group.")
def transfer_leader(
    client: Client,
    broker: BrokerName,
    to: Annotated[
        str,
        typer.Option(
            "-t", "--to", help=("The new leader's name or brokerId (default: most up to date).")
        ),
    ] = "",
) -> Report:
    """Transfer leadership of a Raft group, before its leader is stopped; nothing is lost.

    Without --to it is the member that has most of the log. Exit code 1 if the leader stays.
    """
    status: ReplicasView = client.admin.replicas.transfer_leader(broker_name(client, broker), to)
    rows = [(status.broker_name, status.member, status.epoch, status.end)]
    return Report(("broker", "leader", "epoch", "end"), rows)
