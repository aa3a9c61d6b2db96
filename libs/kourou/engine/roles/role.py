"""The role of a broker: whether it writes its log, when records are committed, who has replicas.

`Role` is that of a standalone broker, which leads a log without replicas. The other roles derive
from it and change what differs: static leader and follower, leader and follower of a Raft group.

State: soft: queues that have advanced beyond the committed position; that a promotion has begun.
The result of a promotion is the EpochOpened of the core that comes after this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from kourou.engine.context import BrokerContext
from kourou.engine.effects import ChangeRole, Effect
from kourou.engine.inputs import RoleInput
from kourou.engine.ports import ANYWHERE
from kourou.engine.pulls.pull_handler import PullHandler
from kourou.engine.sends.confirmations import CommitStart, Confirmations
from kourou.errors import BadRequest, Rejected
from kourou.events.control_events import Event
from kourou.protocol.bodies.broker_bodies import ReplicasView, encode_replicas
from kourou.protocol.messages.replication import (
    GetReplicas,
    PromoteReplica,
    PromoteReplicaResponse,
    TransferLeader,
)
from kourou.protocol.request import Request
from kourou.replication.epochs import Epochs, next_epoch
from kourou.runtime import LogWarning, Peer, Received, Reply

RoleHandlers = Mapping[type[Request], Callable[[int, Received, Any], list[Effect]]]
Queues = Sequence[tuple[str, int, int]]
"""(topic, queue ID, new maximum offset)."""


class Role:
    """Leads a log that has no replicas.

    The core calls `end_batch` only while the role is `active`, and `check_pause` only if writes may
    be paused: a standalone broker pays for neither.
    """

    leads: ClassVar[bool] = True
    """Whether this broker writes the log; a follower copies it."""

    elected: ClassVar[bool] = False
    """Whether a Raft group elects the leader, and commits what the leader writes."""

    may_pause: ClassVar[bool] = False
    """Whether writes may be paused, so that the core must call `check_pause` before each batch."""

    active: bool = False
    """Whether there is something to do at the end of a batch."""

    writable: bool = True
    """Whether the broker may write events of its own now."""

    opened: bool = True
    """Whether events may be recorded: an elected leader opens its epoch first."""

    def __init__(self, context: BrokerContext, pulls: PullHandler) -> None:
        self._policy = context.policy
        self._control = context.control
        self._view = context.view
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._recorder = context.recorder
        self._pulls = pulls
        self._uncommitted = self._uncommitted_at_start()
        self._promoting = False

    def handlers(self) -> RoleHandlers:
        """Return the handlers of the requests whose reply depends on the role."""
        return {
            GetReplicas: self.replicas,
            PromoteReplica: self.promote,
            TransferLeader: self.transfer,
        }

    def handle(self, now_ms: int, item: RoleInput) -> list[Effect]:
        """Handle an input that concerns only some roles; the others ignore it."""
        del now_ms, item
        return []

    def start(self, wall_ms: int) -> None:
        """Open an epoch if the log has epochs; the core takes the appends.

        Raises as recording does; then this broker must not lead.
        """

    def check_pause(self) -> None:
        """Pause writes, or resume them."""

    def tick(self, now_ms: int, _wall_ms: int) -> list[Effect]:
        """Do what is due: release replies that waited too long."""
        return self._confirmations.expire(now_ms)

    def end_batch(self, _now_ms: int) -> list[Effect]:
        """Do what is done once for all inputs of a batch."""
        return []

    def drop_peer(self, peer: Peer) -> None:
        """Handle a closed connection."""

    def lost(self, _reason: str) -> list[Effect]:
        """Handle the loss of leadership: refuse writes; all pending outcomes are unknown."""
        return []

    # -- the committed position -------------------------------------------------------------------

    def _uncommitted_at_start(self) -> list[tuple[int, Queues]]:
        """Return queues with messages that a Raft group has not committed; readers wait."""
        end = self._confirmations.written
        if self._confirmations.confirmed >= end:
            return []
        view = self._view
        targets = [(topic, queue) for topic in view.topics() for queue in view.queue_ids(topic)]
        ranges = [(target, view.queue_range(*target)) for target in targets]
        return [(end, [(*target, span[1]) for target, span in ranges if span is not None])]

    def advanced(self, now_ms: int, queues: Queues) -> list[Effect]:
        """Reply to readers that wait for these queues, as soon as the records are committed."""
        confirmations = self._confirmations
        if confirmations.confirmed >= confirmations.written and not self._uncommitted:
            answers = self._pulls.advanced(now_ms, queues)
            done = self._appends.take_done()
            return [*done, *answers] if done else answers
        self._uncommitted.append((confirmations.written, queues))
        return self.committed(now_ms)

    def committed(self, now_ms: int) -> list[Effect]:
        """Reply to readers, because the committed position may have advanced."""
        confirmed = self._confirmations.confirmed
        effects: list[Effect] = []
        ready = 0
        for end, queues in self._uncommitted:
            if end > confirmed:
                break
            ready += 1
            effects += self._pulls.advanced(now_ms, queues)
        if ready:
            del self._uncommitted[:ready]
        return [*self._appends.take_done(), *effects]

    def deletable_to(self, position: int) -> int:
        """Return the position below which segments may be deleted, at most `position`."""
        return position

    # -- replicas ---------------------------------------------------------------------------------

    @property
    def group(self) -> str:
        """The name under which replicas request the log."""
        return self._policy.broker_name

    @property
    def epochs(self) -> Epochs:
        """The history of what is written, which a replica may not have read yet."""
        return Epochs(self._control.replicas.epochs, self._appends.end)

    @property
    def is_copying(self) -> bool:
        """Whether this broker copies the log of a leader that it is attached to."""
        return False

    @property
    def followers_have(self) -> int:
        """All attached followers have the log below this position; ANYWHERE without followers."""
        return ANYWHERE

    def replicas(self, now_ms: int, received: Received, _request: GetReplicas) -> list[Effect]:
        """Reply with the leader, and how far the followers are (30050)."""
        return [Reply(received.to, body=(encode_replicas(self.status(now_ms)),))]

    def status(self, now_ms: int) -> ReplicasView:
        """Return what this broker knows of the replicas of its log."""
        policy, known = self._policy, self._control.replicas
        first, end = self._view.log_range()
        view = ReplicasView(
            cluster=policy.cluster_name,
            broker_name=policy.broker_name,
            broker_id=policy.broker_id,
            broker_role=known.role,
            leads=self.leads,
            epoch=known.epoch,
            leader=known.leader,
            first=first,
            end=end,
            flushed=self._confirmations.flushed,
            confirmed=self._confirmations.confirmed,
            in_sync=known.in_sync,
            epochs=tuple(known.epochs),
        )
        return self._describe(view, now_ms)

    def _describe(self, view: ReplicasView, _now_ms: int) -> ReplicasView:
        """Add what only this role knows."""
        return view

    # -- requests to change the leader ------------------------------------------------------------

    def promote(self, now_ms: int, received: Received, request: PromoteReplica) -> list[Effect]:
        """Promote this broker to leader (30051); the reply is sent before it leads."""
        self._check_name(request.broker_name)
        if self._promoting:
            raise Rejected("this broker is being promoted already")
        newest, lag_bytes = self._check_promotion(now_ms, force=request.force)
        end = self._view.log_range()[1]
        epoch = next_epoch(
            max(newest, self._control.replicas.epoch), self._policy.broker_id, promoted=True
        )
        self._promoting = True
        answer = PromoteReplicaResponse(epoch=epoch, position=end, behind=lag_bytes)
        warning = LogWarning(
            "promotion-started: %(peer)s promotes this broker: it becomes the leader at position "
            "%(position)d, in epoch %(epoch)d; the previous leader had %(lag_bytes)d bytes more",
            {"peer": received.to.peer, "position": end, "epoch": epoch, "lag_bytes": lag_bytes},
        )
        reply = Reply(received.to, header=answer)
        return [reply, warning, *self._notify_leader(epoch), ChangeRole(True, epoch)]

    def _check_promotion(self, _now_ms: int, *, force: bool) -> tuple[int, int]:
        """Return the newest known epoch, and the bytes that the leader had more than this broker.

        Raises Rejected if this broker may not be promoted, or only with `force`.
        """
        del force
        raise Rejected(
            "this broker cannot be promoted: it has no replicas",
            hint="set replicationEnable=true to allow followers",
        )

    def _notify_leader(self, _epoch: int) -> list[Effect]:
        """Notify the leader that this broker opens `epoch`, so that it stops writing at once."""
        return []

    def transfer(self, _now_ms: int, _received: Received, request: TransferLeader) -> list[Effect]:
        """Transfer leadership to another replica (30052); only a Raft group does."""
        self._check_name(request.broker_name)
        raise Rejected(
            f"broker {self._policy.broker_name} is not a Raft group",
            hint="stop its leader, then promote a follower",
        )

    def _check_name(self, broker_name: str) -> None:
        if broker_name != self._policy.broker_name:
            raise BadRequest(f"this is {self._policy.broker_name}, not {broker_name}")


class RoleSettings(Protocol):
    """What a role is created from."""

    def confirmations(self, start: CommitStart) -> Confirmations:
        """Create the rule that decides when records are committed and senders get their replies."""
        ...

    def create(
        self, context: BrokerContext, pulls: PullHandler, apply: Callable[[Sequence[Event]], None]
    ) -> Role:
        """Create the role; a follower calls `apply` with the leader's decisions in its copy."""
        ...


@dataclass(frozen=True, slots=True)
class StandaloneRole:
    """Leads a log that cannot be followed."""

    def confirmations(self, start: CommitStart) -> Confirmations:
        """Create the rule that decides when senders get their replies."""
        return Confirmations(start)

    def create(
        self, context: BrokerContext, pulls: PullHandler, apply: Callable[[Sequence[Event]], None]
    ) -> Role:
        """Create the role."""
        del apply
        return Role(context, pulls)


STANDALONE = StandaloneRole()
