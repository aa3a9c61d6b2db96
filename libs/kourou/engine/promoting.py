"""May this follower lead? What an operator is told before a copy becomes the log.

A follower is refused while its leader is heard, because both would take writes until a name server
tells the old one, and what that one acknowledges meanwhile is cut later. Where senders waited for
copies (SYNC_MASTER) it is refused, too, if its own log does not have it in the in-sync set and has
others there: they have all that was acknowledged, and this one may not. It knows of the set what it
has copied; whoever promotes compares the ends of all followers first (docs/operating.md).
"""

from __future__ import annotations

from kourou.engine.replicas import Replicas
from kourou.errors import Rejected
from kourou.replication.in_sync import named


def member_name(broker_name: str, broker_id: int) -> str:
    """How the log names whoever leads it."""
    return f"{broker_name}/{broker_id}"


def quorum_leader_name(broker_name: str, member: str) -> str:
    """How the log names the member of a Raft group that leads it."""
    return f"{broker_name}/{member}"


def leads(replicas: Replicas, broker_name: str, broker_id: int) -> bool:
    """Was the newest epoch of this log opened by that member? Then it goes on leading at a start.

    So a promotion outlives the process, whatever brokerRole says in its settings.
    """
    return replicas.leader == member_name(broker_name, broker_id)


def check_promotion(
    replicas: Replicas, broker_id: int, *, leader: str, silent_ms: int | None
) -> None:
    """Refuse what would lose more than an operator may expect; `force` passes this by.

    `silent_ms`: since when the leader was not heard, None if there is no connection to it. Raises
    Rejected.
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
