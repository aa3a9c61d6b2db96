"""`kourou admin`: the commands for replicas and leaders, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from kourou.cli.admin.options import (
    Interval,
    Json,
    NameServer,
    OneBroker,
    OneCluster,
    Rounds,
    Switch,
    command,
    report,
)


@command("replicas", "Show leaders, followers and replication lag.")
def replicas(
    namesrv: NameServer = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    interval: Interval = None,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """Show roles, epochs, positions and lag of all replicas; exit code 1 if one is unhealthy."""
    from kourou.cli.admin import replica_actions

    return report(
        namesrv,
        lambda client: replica_actions.replicas(client, broker, cluster),
        as_json=json,
        interval_s=interval,
        rounds=rounds,
    )


@command("promote", "Promote a follower to leader.")
def promote(
    broker: Annotated[str, typer.Option("-b", "--broker", "--brokerName", help="The broker name.")],
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
    namesrv: NameServer = None,
    json: Json = False,
) -> int:
    """Promote a follower to leader in a new epoch; refused while the old leader is online.

    Stop the old leader first, and bring it back as a follower. With --force what the follower
    lacks, and what the old leader still acknowledges, is lost.
    """
    from kourou.cli.admin import replica_actions

    return report(
        namesrv,
        lambda client: replica_actions.promote(
            client, broker, broker_id, address=address, force=force.on
        ),
        as_json=json,
    )


@command("transfer-leader", "Transfer leadership of a Raft group.")
def transfer_leader(
    broker: Annotated[str, typer.Option("-b", "--broker", "--brokerName", help="The broker name.")],
    to: Annotated[
        str,
        typer.Option(
            "-t", "--to", help=("The new leader's name or brokerId (default: most up to date).")
        ),
    ] = "",
    namesrv: NameServer = None,
    json: Json = False,
) -> int:
    """Transfer leadership of a Raft group, before its leader is stopped; nothing is lost.

    Without --to it is the member that has most of the log. Exit code 1 if the leader stays.
    """
    from kourou.cli.admin import replica_actions

    return report(
        namesrv,
        lambda client: replica_actions.transfer_leader(client, broker, to),
        as_json=json,
    )
