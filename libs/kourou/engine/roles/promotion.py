"""Checks whether a follower may be promoted to leader.

A promotion is refused while the leader is online: both would accept writes until a name server
informs the old leader, and what that one acknowledges in the meantime is truncated later. If
senders waited for replicas (SYNC_MASTER), a follower is also refused if its own log has others in
the in-sync set, but not itself: they have everything that was acknowledged, and this one may not. A
follower knows the in-sync set only as far as it has copied the log. So the operator compares the
ends of all followers first (docs/operating.md).
"""

from __future__ import annotations

from kourou.engine.roles.replicas import Replicas
from kourou.errors import Rejected
from kourou.replication.in_sync import named


def member_name(broker_name: str, broker_id: int) -> str:
    """Return the name of a leader in the log."""
    return f"{broker_name}/{broker_id}"


def quorum_leader_name(broker_name: str, member: str) -> str:
    """Return the name of a Raft group's leader in the log."""
    return f"{broker_name}/{member}"


def leads(replicas: Replicas, broker_name: str, broker_id: int) -> bool:
    """Return whether that broker opened the newest epoch of this log; then it leads after a start.

    So a promotion survives a restart, whatever brokerRole is in the settings.
    """
    return replicas.leader == member_name(broker_name, broker_id)


def check_promotion(
    replicas: Replicas, broker_id: int, *, leader: str, silent_ms: int | None
) -> None:
    """Refuse a promotion that loses more than an operator may expect; `force` skips this check.

    `silent_ms`: how long ago the leader was last heard, None if there is no connection to it.
    Raises Rejected.
    """
    if silent_ms is not None:
        where = f" at {leader}" if leader else ""
        raise Rejected(
            f"the leader{where} is online: its last message arrived {silent_ms} ms ago",
            hint="stop it first; force replaces it, and messages that it still "
            "acknowledges are lost",
        )
    others = tuple(member for member in replicas.in_sync if member != broker_id)
    if others and broker_id not in replicas.in_sync:
        raise Rejected(
            f"acknowledged messages are on the in-sync replicas {named(others)}; "
            f"{broker_id} may lack some of them",
            hint="promote one of those; with force, the messages missing from this one are lost",
        )
