"""The leaders of this log, the position where each epoch starts, and the in-sync set.

State: projection of EpochOpened and InSyncChanged; owned and changed in place by `evolve`.

A follower that was in the in-sync set may have the only copy of acknowledged messages, long after
it has left the set. What is below the position where it left may depend on its copy for ever.

Invariants:
- epochs and their starts increase
- epoch 0 has no event: it is everything before the first one
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kourou.engine.ports import ANYWHERE
from kourou.errors import Rejected
from kourou.events.control_events import Count, EpochOpened, InSyncChanged, ReplicationEventBase
from kourou.replication.epochs import promotion_of
from kourou.replication.progress import named


@dataclass(slots=True)
class ReplicaAggregate:
    """`epochs` are (epoch, position where it starts); `leader` is that of the last one.

    `left`: brokerId -> the position below which its copy counted, for those that no longer count.
    """

    epochs: list[tuple[int, int]] = field(default_factory=list)
    leader: str = ""
    role: str = ""
    in_sync: tuple[int, ...] = ()
    left: dict[int, int] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The newest epoch; 0 for a log that never had a follower."""
        return self.epochs[-1][0] if self.epochs else 0

    @property
    def promotion(self) -> int:
        """The epoch of its newest promotion; 0 if there was none."""
        return promotion_of(epoch for epoch, _ in self.epochs)

    def copy(self) -> ReplicaAggregate:
        """Return an independent copy."""
        return ReplicaAggregate(
            list(self.epochs), self.leader, self.role, self.in_sync, dict(self.left)
        )

    def promised_to(self, member: int) -> int:
        """Return the position below which senders may rely on this follower's copy, 0: nothing."""
        return ANYWHERE if member in self.in_sync else self.left.get(member, 0)


def evolve(replicas: ReplicaAggregate, event: ReplicationEventBase, position: int) -> None:
    """Apply one event, in place; `position` is that of its record."""
    match event:
        case EpochOpened(epoch, start, leader, role):
            if epoch > replicas.epoch:
                replicas.epochs.append((epoch, start))
            replicas.leader, replicas.role = leader, role
            # The in-sync set starts empty in every epoch.
            _set(replicas, (), start)
        case InSyncChanged(members):
            _set(replicas, members, position)


def _set(replicas: ReplicaAggregate, members: tuple[int, ...], position: int) -> None:
    for member in replicas.in_sync:
        if member not in members:
            replicas.left[member] = position
    replicas.in_sync = members


class ReplicasSnapshot(msgspec.Struct, frozen=True):
    """The state as it is in a snapshot."""

    epochs: tuple[tuple[Count, Count], ...] = ()
    leader: str = ""
    role: str = ""
    in_sync: tuple[Count, ...] = ()
    left: dict[Count, Count] = {}


def snapshot(replicas: ReplicaAggregate) -> ReplicasSnapshot:
    """Return the state for a snapshot."""
    return ReplicasSnapshot(
        tuple(replicas.epochs),
        replicas.leader,
        replicas.role,
        tuple(replicas.in_sync),
        dict(sorted(replicas.left.items())),
    )


def replicas_of(found: ReplicasSnapshot) -> ReplicaAggregate:
    """Return the state from a result of `snapshot`."""
    return ReplicaAggregate(
        list(found.epochs), found.leader, found.role, found.in_sync, dict(found.left)
    )


def member_name(broker_name: str, broker_id: int) -> str:
    """Return the name of a leader in the log."""
    return f"{broker_name}/{broker_id}"


def quorum_leader_name(broker_name: str, member: str) -> str:
    """Return the name of a Raft group's leader in the log."""
    return f"{broker_name}/{member}"


def leads(replicas: ReplicaAggregate, broker_name: str, broker_id: int) -> bool:
    """Return whether that broker opened the newest epoch of this log; then it leads after a start.

    So a promotion survives a restart, whatever brokerRole is in the settings.
    """
    return replicas.leader == member_name(broker_name, broker_id)


def check_promotion(
    replicas: ReplicaAggregate, broker_id: int, *, leader: str, silent_ms: int | None
) -> None:
    """Refuse a promotion that loses more than an operator may expect; `force` skips this check.

    A promotion is refused while the leader is online: both would accept writes until a name server
    informs the old leader, and what that one acknowledges in the meantime is truncated later. If
    senders waited for replicas (SYNC_MASTER), a follower is also refused if its own log has others
    in the in-sync set, but not itself: they have everything that was acknowledged, and this one may
    not. A follower knows the in-sync set only as far as it has copied the log. So the operator
    compares the ends of all followers first (docs/operating.md).

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
