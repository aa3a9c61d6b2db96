"""A replica of a Raft group: the leader opens its epoch, a follower copies and forwards.

State: soft, except EpochOpened, which is recorded (engine.roles.replicas).

The record that opens the epoch comes before all others: until a majority has it, nothing of older
epochs may be committed (kourou.replication.raft).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect, Forward
from kourou.engine.ports import Quorum, QuorumMember
from kourou.engine.roles.copied_log import CopiedLog, FollowedConfirmations
from kourou.engine.roles.follower import REFUSED
from kourou.engine.roles.leader import SYNC_MASTER
from kourou.engine.roles.replicas import quorum_leader_name
from kourou.engine.sends.confirmations import CommitStart, QuorumConfirmations
from kourou.errors import NotLeader
from kourou.events.control_events import Cause, EpochOpened
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou.protocol.messages import groups, sends
from kourou.protocol.messages.replication import TransferLeader
from kourou.protocol.messages.sends import SendRecords
from kourou.protocol.request import Request
from kourou.replication.progress import Lag
from kourou.runtime.core import MEMBERS, Peer, Received


@dataclass(frozen=True, slots=True)
class QuorumLeaderRole:
    """Leads `epoch`, which its first record opens. `slave_timeout_ms`: how long a sender waits."""

    epoch: int
    quorum: Quorum
    slave_timeout_ms: int = 3_000

    def confirmations(self, start: CommitStart) -> QuorumConfirmations:
        """Create the rule that decides when senders get their replies."""
        return QuorumConfirmations(self.quorum, start, self.slave_timeout_ms)


@dataclass(frozen=True, slots=True)
class QuorumFollowerRole:
    """Follows the elected leader, or waits for an election."""

    quorum: Quorum

    def confirmations(self, start: CommitStart) -> FollowedConfirmations:
        """Create the committed position, as the group knows it."""
        return FollowedConfirmations(start, self.quorum.confirmed)


class QuorumLeader:
    """Leads one log for a group. Replicas do not attach here: the Raft node serves them."""

    active = False
    broker_role = SYNC_MASTER

    def __init__(self, context: BrokerContext, role: QuorumLeaderRole) -> None:
        self._role = role
        self._policy = context.policy
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._recorder = context.recorder
        self._lags: dict[int, Lag] = {}
        self._opened = self._paused = False

    def handlers(self) -> Mapping[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return no handlers: replicas talk to the owner of the Raft node, not to this core."""
        return {}

    @property
    def quorum(self) -> Quorum:
        """The group."""
        return self._role.quorum

    @property
    def opened(self) -> bool:
        """Whether the epoch is open, so that other events may be recorded."""
        return self._opened

    @property
    def paused(self) -> bool:
        """Whether writes are paused, because leadership is being transferred."""
        return self._paused

    # -- the epoch --------------------------------------------------------------------------------

    def start(self, wall_ms: int) -> None:
        """Open the epoch at the end of the log; its event is the first record of this leader.

        Raises as recording does; then this replica must not continue to lead.
        """
        leader = quorum_leader_name(self._policy.broker_name, self.quorum.member)
        opened = EpochOpened(self._role.epoch, self._appends.end, leader, self.broker_role)
        self._recorder.record([opened], Cause("broker", "was elected"), wall_ms)
        self._opened = True

    def look(self) -> None:
        """Before a batch: pause writes while leadership is transferred, resume if that fails.

        Under load, the new leader would otherwise never have the whole log.
        """
        paused = not self.quorum.may_append()
        if paused == self._paused:
            return
        self._paused = paused
        if paused:
            self._appends.pause(f"{self.quorum.member} is transferring leadership")
        else:
            self._appends.go_on()

    def lost(self, reason: str) -> list[Effect]:
        """Handle the loss of leadership: refuse writes; all pending outcomes are unknown."""
        self._appends.refuse(reason, hint="send the request to the leader")
        return self._confirmations.fail(reason)

    def outdone(self, _epoch: int) -> list[Effect]:
        """Ignore a name server's report of another leader: the group knows better who leads."""
        return []

    # -- followers --------------------------------------------------------------------------------

    def lag_ms(self, now_ms: int, one: QuorumMember) -> int | None:
        """Return how long ago a replica had the whole log; None if never in this epoch."""
        if one.written >= self._appends.end:
            return 0
        lag = self._lags.get(one.broker_id)
        return None if lag is None else lag.ms(now_ms)

    def describe(self, view: ReplicasView, now_ms: int) -> ReplicasView:
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
            for one in sorted(self.quorum.followers(), key=lambda one: one.broker_id)
        )
        return replace(view, member=self.quorum.member, followers=followers)

    def tick(self, now_ms: int, _wall_ms: int) -> None:
        """Note how far each replica lags, several times a second."""
        for one in self.quorum.followers():
            lag = self._lags.setdefault(one.broker_id, Lag())
            lag.noted(now_ms, one.written, self._appends.end)

    def turn(self, _now_ms: int) -> list[Effect]:
        """Do nothing at the end of a batch: the owner of the Raft node ships."""
        return []

    def drop_peer(self, peer: Peer) -> None:
        """Do nothing: no replica follows over a connection of this core."""


KEPT: frozenset[type[Request]] = frozenset(
    {groups.LockBatchMq, groups.UnlockBatchMq, sends.SendReplyMessage}
)
"""Requests that a leader handles only for clients that are connected to it."""


class QuorumFollower:
    """Follows the elected leader.

    State: none of its own.

    A request is forwarded once. A replica that receives a forwarded request and does not lead
    either refuses it, so that two replicas that take each other for the leader do not forward it in
    a loop. Requests that depend on the client's own connection are not forwarded: locks, because
    the leader itself must have contact with their holders, and reply messages, which go to the
    requester.
    """

    active = False

    def __init__(self, context: BrokerContext, quorum: Quorum, log: CopiedLog) -> None:
        self._quorum = quorum
        self._policy = context.policy
        self._appends = context.appends
        self._log = log
        self._lag = Lag()
        name = context.policy.broker_name
        context.appends.refuse(
            f"this replica of {name} is not the leader and does not accept messages",
            hint="send to the leader",
        )

    @property
    def quorum(self) -> Quorum:
        """The group."""
        return self._quorum

    @property
    def leader_address(self) -> str:
        """The address where clients reach the leader; "" while unknown."""
        return self._quorum.leader_address

    def handlers(self) -> Mapping[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handlers for requests that a follower must forward."""
        return {**dict.fromkeys(REFUSED, self._pass_on), TransferLeader: self._pass_on}

    def _pass_on(self, _now_ms: int, received: Received, request: Request) -> list[Effect]:
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

    def outdone(self, _epoch: int) -> list[Effect]:
        """Ignore a name server's report of another leader: the group knows better who leads."""
        return []

    def describe(self, view: ReplicasView, now_ms: int) -> ReplicasView:
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

    def copied(self, end: int) -> None:
        """Note that the store has the leader's bytes up to `end`."""
        self._log.copied(end)

    def advanced(self, queues: Sequence[tuple[str, int, int]]) -> list[Effect]:
        """Apply new control events, if the queue of control events has advanced."""
        return self._log.advanced(queues)

    def confirmed(self) -> list[Effect]:
        """Return the deletions that are committed by now."""
        return self._log.deletions()

    # -- timers and batches -----------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Effect]:
        """Note how far this replica lags, several times a second."""
        if self._quorum.leader:
            self._lag.noted(now_ms, self._appends.end, self._quorum.leader_end)
        return []

    def lag_ms(self, now_ms: int) -> int | None:
        """Return how long ago this replica had the leader's whole log; None if never."""
        quorum = self._quorum
        if quorum.leader and self._appends.end >= quorum.leader_end:
            return 0
        return self._lag.ms(now_ms)

    def turn(self, _now_ms: int) -> list[Effect]:
        """Do nothing at the end of a batch: the owner of the Raft node reports to the leader."""
        return []

    def drop_peer(self, peer: Peer) -> None:
        """Do nothing: this core has no connection to the leader."""
