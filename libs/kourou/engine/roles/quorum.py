"""A replica of a Raft group: the leader opens its epoch, a follower copies and forwards.

State: soft, except EpochOpened, which is recorded (engine.roles.replicas).

The record that opens the epoch comes before all others: until a majority has it, nothing of older
epochs may be committed (kourou.replication.raft).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect, Forward
from kourou.engine.inputs import Confirmed, Copied, RoleInput
from kourou.engine.ports import JOINING, Quorum, QuorumMember
from kourou.engine.pulls.pull_handler import PullHandler
from kourou.engine.roles.follower import REFUSED, CopiedLog, FollowedConfirmations
from kourou.engine.roles.leader import SYNC_MASTER
from kourou.engine.roles.replicas import quorum_leader_name
from kourou.engine.roles.role import Queues, Role, RoleHandlers
from kourou.engine.sends.confirmations import CommitStart, QuorumConfirmations
from kourou.errors import BadRequest, NotLeader, Rejected
from kourou.events.control_events import Cause, EpochOpened, Event
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou.protocol.messages import groups, sends
from kourou.protocol.messages.replication import TransferLeader, TransferLeaderResponse
from kourou.protocol.messages.sends import SendRecords
from kourou.protocol.request import Request
from kourou.replication.epochs import Epochs
from kourou.replication.progress import Lag
from kourou.replication.raft.inputs import TransferLeadership
from kourou.runtime import MEMBERS, LogWarning, Received, Reply


@dataclass(frozen=True, slots=True)
class QuorumLeaderRole:
    """Leads `epoch`, which its first record opens. `slave_timeout_ms`: how long a sender waits."""

    epoch: int
    quorum: Quorum
    slave_timeout_ms: int = 3_000

    def confirmations(self, start: CommitStart) -> QuorumConfirmations:
        """Create the rule that decides when senders get their replies."""
        return QuorumConfirmations(self.quorum, start, self.slave_timeout_ms)

    def create(
        self, context: BrokerContext, pulls: PullHandler, apply: Callable[[Sequence[Event]], None]
    ) -> Role:
        """Create the role."""
        del apply
        return QuorumLeader(context, pulls, self)


@dataclass(frozen=True, slots=True)
class QuorumFollowerRole:
    """Follows the elected leader, or waits for an election."""

    quorum: Quorum

    def confirmations(self, start: CommitStart) -> FollowedConfirmations:
        """Create the committed position, as the group knows it."""
        return FollowedConfirmations(start, self.quorum.confirmed)

    def create(
        self, context: BrokerContext, pulls: PullHandler, apply: Callable[[Sequence[Event]], None]
    ) -> Role:
        """Create the role; `apply` applies the leader's decisions."""
        return QuorumFollower(context, pulls, self.quorum, CopiedLog(context, apply))


class QuorumRole(Role):
    """What leader and followers of a Raft group have in common.

    Replicas do not attach to this core: the owner of the Raft node ships the log.
    """

    elected: ClassVar[bool] = True

    def __init__(self, context: BrokerContext, pulls: PullHandler, quorum: Quorum) -> None:
        super().__init__(context, pulls)
        self._quorum = quorum

    @property
    def group(self) -> str:
        """The name of the Raft group, which may differ from the broker's."""
        return self._quorum.group

    @property
    def epochs(self) -> Epochs:
        """The history of the log, as the Raft node has it."""
        return self._quorum.epochs

    def _check_promotion(self, _now_ms: int, *, force: bool) -> tuple[int, int]:
        del force
        raise Rejected(
            "this broker is a Raft group, which elects its leader",
            hint="to transfer leadership: kourou admin transfer-leader",
        )


class QuorumLeader(QuorumRole):
    """Leads one log for a group.

    While leadership is transferred, writes are paused and `writable` is False.
    """

    may_pause: ClassVar[bool] = True
    broker_role = SYNC_MASTER

    def __init__(
        self, context: BrokerContext, pulls: PullHandler, settings: QuorumLeaderRole
    ) -> None:
        super().__init__(context, pulls, settings.quorum)
        self._epoch = settings.epoch
        self._lags: dict[int, Lag] = {}
        self.opened = False

    def handle(self, now_ms: int, item: RoleInput) -> list[Effect]:
        """Release what waited for the group. The group knows better than name servers who leads."""
        if not isinstance(item, Confirmed):
            return []
        return [*self._confirmations.confirmed_to(item.position), *self.committed(now_ms)]

    # -- the epoch --------------------------------------------------------------------------------

    def start(self, wall_ms: int) -> None:
        """Open the epoch at the end of the log; its event is the first record of this leader.

        Raises as recording does; then this replica must not continue to lead.
        """
        leader = quorum_leader_name(self._policy.broker_name, self._quorum.member)
        opened = EpochOpened(self._epoch, self._appends.end, leader, self.broker_role)
        self._recorder.record([opened], Cause("broker", "was elected"), wall_ms)
        self.opened = True

    def check_pause(self) -> None:
        """Before a batch: pause writes while leadership is transferred, resume if that fails.

        Under load, the new leader would otherwise never have the whole log.
        """
        writable = self._quorum.may_append()
        if writable == self.writable:
            return
        self.writable = writable
        if writable:
            self._appends.resume()
        else:
            self._appends.pause(f"{self._quorum.member} is transferring leadership")

    def lost(self, reason: str) -> list[Effect]:
        """Handle the loss of leadership: refuse writes; all pending outcomes are unknown."""
        self._appends.refuse(reason, hint="send the request to the leader")
        return self._confirmations.fail(reason)

    def deletable_to(self, position: int) -> int:
        """Return at most the committed position.

        A replica that truncates uncommitted records continues from the records before them.
        """
        return min(position, self._confirmations.confirmed)

    def transfer(self, _now_ms: int, received: Received, request: TransferLeader) -> list[Effect]:
        """Transfer leadership to another replica (30052); the reply is sent when that begins."""
        self._check_name(request.broker_name)
        quorum = self._quorum
        target = _next_leader(quorum, request.target)
        answer = TransferLeaderResponse(leader=quorum.member, epoch=quorum.epoch, target=target)
        warning = LogWarning(
            "leadership-transfer-requested: %(peer)s requests a transfer of leadership from "
            "%(leader)s to %(target)s",
            {
                "peer": received.to.peer,
                "leader": quorum.member,
                "target": target or "the most up-to-date replica",
            },
        )
        return [Reply(received.to, header=answer), warning, TransferLeadership(target)]

    # -- followers --------------------------------------------------------------------------------

    def lag_ms(self, now_ms: int, one: QuorumMember) -> int | None:
        """Return how long ago a replica had the whole log; None if never in this epoch."""
        if one.written >= self._appends.end:
            return 0
        lag = self._lags.get(one.broker_id)
        return None if lag is None else lag.ms(now_ms)

    def _describe(self, view: ReplicasView, now_ms: int) -> ReplicasView:
        """Add what the group's leader knows of the other replicas."""
        followers = tuple(
            FollowerView(
                broker_id=one.broker_id,
                address="",
                state=one.state,
                written=one.written,
                flushed=one.flushed,
                lag_bytes=max(0, view.end - one.written),
                lag_ms=self.lag_ms(now_ms, one),
                in_sync=False,
                member=one.member,
            )
            for one in sorted(self._quorum.followers(), key=lambda one: one.broker_id)
        )
        return replace(
            view, broker_role=self.broker_role, member=self._quorum.member, followers=followers
        )

    def tick(self, now_ms: int, wall_ms: int) -> list[Effect]:
        """Note how far each replica lags, and release replies that waited too long."""
        for one in self._quorum.followers():
            lag = self._lags.setdefault(one.broker_id, Lag())
            lag.noted(now_ms, one.written, self._appends.end)
        return super().tick(now_ms, wall_ms)


def _next_leader(quorum: Quorum, wanted: str) -> str:
    """Return the replica that is to lead, "" for the most up-to-date one.

    Raises Rejected if leadership cannot be transferred now, or not to that replica.
    """
    others = quorum.followers()
    target = _member_named(others, wanted) if wanted else ""
    voters = [one.member for one in others if one.state != JOINING.upper()]
    if target and target not in voters:
        raise Rejected(
            f"replica {target} has no vote yet: it is catching up",
            hint="retry when it is no longer JOINING: kourou admin replicas",
        )
    if not voters:
        raise Rejected(
            "no other replica has a vote", hint="check the replicas: kourou admin replicas"
        )
    if not quorum.may_append():
        raise Rejected(
            f"replica {quorum.member} is transferring leadership already",
            hint="check which replica is the leader, and retry there: kourou admin replicas",
        )
    return target


def _member_named(others: Sequence[QuorumMember], target: str) -> str:
    """Return the replica with this name or brokerId."""
    for one in others:
        if target in {one.member, str(one.broker_id)}:
            return one.member
    known = ", ".join(f"{one.member} (brokerId {one.broker_id})" for one in others) or "none"
    raise BadRequest(
        f"{target} is not another replica of this group", hint=f"other replicas: {known}"
    )


KEPT: frozenset[type[Request]] = frozenset(
    {groups.LockBatchMq, groups.UnlockBatchMq, sends.SendReplyMessage}
)
"""Requests that a leader handles only for clients that are connected to it."""


class QuorumFollower(QuorumRole):
    """Follows the elected leader.

    State: none of its own.

    A request is forwarded once. A replica that receives a forwarded request and does not lead
    either refuses it, so that two replicas that take each other for the leader do not forward it in
    a loop. Requests that depend on the client's own connection are not forwarded: locks, because
    the leader itself must have contact with their holders, and reply messages, which go to the
    requester.
    """

    leads: ClassVar[bool] = False
    writable = False

    def __init__(
        self, context: BrokerContext, pulls: PullHandler, quorum: Quorum, log: CopiedLog
    ) -> None:
        super().__init__(context, pulls, quorum)
        self._log = log
        self._lag = Lag()
        name = context.policy.broker_name
        context.appends.refuse(
            f"this replica of {name} is not the leader and does not accept messages",
            hint="send to the leader",
        )

    @property
    def leader_address(self) -> str:
        """The address where clients reach the leader; "" while unknown."""
        return self._quorum.leader_address

    def handlers(self) -> RoleHandlers:
        """Return the handlers; a follower forwards what only its leader does."""
        forwarded = dict.fromkeys(REFUSED, self._forward)
        return {**super().handlers(), **forwarded, TransferLeader: self._forward}

    def handle(self, now_ms: int, item: RoleInput) -> list[Effect]:
        """Note what was copied and committed; delete what may be deleted by now."""
        match item:
            case Copied(end):
                self._log.copied(end)
            case Confirmed(position):
                self._confirmations.confirmed_to(position)
                return [*self._log.deletions(), *self.committed(now_ms)]
        return []

    def _forward(self, _now_ms: int, received: Received, request: Request) -> list[Effect]:
        leader = self._quorum.leader
        own = type(request) in KEPT or received.to.peer.listener == MEMBERS
        if not leader or leader == self._quorum.member or own:
            raise NotLeader(
                self._refusal(leader), hint="send the request to the leader" if leader else "retry"
            )
        if isinstance(request, SendRecords) and request.attempt == 1:
            # This replica may have been suspended while its sender used another one, and the leader
            # at that time may be gone, and with it the memory of that send. So the leader must look
            # for a copy.
            request = msgspec.structs.replace(request, attempt=0)
        origin, body = received.origin, received.body
        return [Forward(leader, received.to, request, body, received.deadline_ms, origin)]

    def _refusal(self, leader: str) -> str:
        quorum, name = self._quorum, self._policy.broker_name
        if not leader or leader == quorum.member:
            return f"broker {name} has no leader; an election is in progress"
        at = f" at {quorum.leader_address}" if quorum.leader_address else ""
        return f"the leader of {name} is {leader}{at}; this replica, {quorum.member}, is a follower"

    def _describe(self, view: ReplicasView, now_ms: int) -> ReplicasView:
        """Add who leads the group, and how far this replica lags."""
        quorum = self._quorum
        leader = quorum.leader and quorum_leader_name(self._policy.broker_name, quorum.leader)
        return replace(
            view,
            member=quorum.member,
            epoch=max(view.epoch, quorum.epoch),
            leader=leader,
            leader_address=self.leader_address,
            state=quorum.state,
            lag_bytes=max(0, quorum.leader_end - view.end),
            lag_ms=self.lag_ms(now_ms),
        )

    # -- the copy ---------------------------------------------------------------------------------

    def advanced(self, now_ms: int, queues: Queues) -> list[Effect]:
        """Apply new control events, then reply to readers of these queues."""
        effects = self._log.advanced(queues)
        completed = self._log.completed(self._quorum.leader_end)
        return [*effects, *completed, *super().advanced(now_ms, queues)]

    def tick(self, now_ms: int, _wall_ms: int) -> list[Effect]:
        """Note how far this replica lags, and that its copy is complete."""
        if self._quorum.leader:
            self._lag.noted(now_ms, self._appends.end, self._quorum.leader_end)
        return self._log.completed(self._quorum.leader_end)

    def lag_ms(self, now_ms: int) -> int | None:
        """Return how long ago this replica had the leader's whole log; None if never."""
        quorum = self._quorum
        if quorum.leader and self._appends.end >= quorum.leader_end:
            return 0
        return self._lag.ms(now_ms)
