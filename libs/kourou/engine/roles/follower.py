"""The roles of followers: how a copied log takes effect, and a static follower.

A static follower copies the log of its configured leader.

State: projection of the copied log, by the same `evolve` as on a leader; soft: the leader's
address, and the newest promotion, which name servers report again with every registration.

A follower assigns no numbers: Appends refuses, so that no handler can write by mistake. Timed
decisions of a broker do not run: delayed messages, check-backs, expiry. When the leader deletes a
part of its log, that is an event, and the follower deletes the same part.

Offsets that consumers commit here are kept in memory until the leader's event for the same queue
arrives.

Becoming a leader is a restart: the core is created again from the store.

`CopiedLog` applies the bytes that were copied from a leader. An event takes effect when it is
copied. A follower that must truncate the event restarts, and recovers the state without it. A
deletion cannot be undone, so it waits until its event is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec

from kourou.authorization.access_table import why_closed
from kourou.engine.context import BrokerContext
from kourou.engine.control import evolve
from kourou.engine.effects import CopyChunk, CopyCompleted, DeleteLogBefore, Effect, Flush
from kourou.engine.groups.progress import yield_to
from kourou.engine.inputs import Copied, Fenced, LeaderConnected, NotCopied, RoleInput
from kourou.engine.pulls.pull_handler import PullHandler
from kourou.engine.roles.replicas import check_promotion
from kourou.engine.roles.role import Queues, Role, RoleHandlers
from kourou.engine.sends.confirmations import CommitStart, Confirmations
from kourou.engine.sends.recorder import entailed_by, read_control_events
from kourou.errors import NotLeader
from kourou.events.control_events import Event, LogDeleted, OffsetsReset, ProgressRecorded, Recorded
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.bodies.broker_bodies import ReplicasView
from kourou.protocol.messages import broker_admin, filter_server, groups, pulls, quotas, sends
from kourou.protocol.messages.replication import Attached, ChunkAck, LogChunk
from kourou.protocol.request import Request
from kourou.replication.epochs import Epochs, TruncateLog
from kourou.replication.static_follower import (
    AppendBytes,
    Copying,
    FollowerIdentity,
    FollowerStep,
    RestartAt,
    SendToLeader,
    TruncateTo,
)
from kourou.runtime import LogWarning, Notify, Peer, Received


class FollowedConfirmations(Confirmations):
    """The committed position of a follower; `reported` is what the leader or the group reported."""

    __slots__ = ("reported",)

    def __init__(self, start: CommitStart, reported: int) -> None:
        super().__init__(replace(start, sync_flush=False, flush_timeout_ms=0, staged=False))
        self.reported = reported

    @property
    def confirmed(self) -> int:
        """The committed position: readers see the records below it."""
        return min(super().confirmed, self.reported)

    def confirmed_to(self, position: int) -> list[Effect]:
        """Note that the group has committed everything below `position`."""
        self.reported = max(self.reported, position)
        return []


class CopiedLog:
    """The copy of one log; `apply` applies changed settings."""

    def __init__(self, context: BrokerContext, apply: Callable[[Sequence[Event]], None]) -> None:
        self._control = context.control
        self._view = context.view
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._apply = apply
        self._deletions: deque[tuple[int, int]] = deque()  # (position of the event, new log start)
        self._complete_at = 0

    def copied(self, end: int) -> None:
        """Note that the store has the leader's bytes up to `end`."""
        self._appends.copied_to(end)
        self._confirmations.append(end)

    def advanced(self, queues: Sequence[tuple[str, int, int]]) -> list[Effect]:
        """Apply new control events, if the queue of control events has advanced."""
        if not any(topic == CONTROL_TOPIC for topic, _, _ in queues):
            return []
        effects: list[Effect] = []
        end = self._confirmations.appended
        while True:
            lost: list[LogWarning] = []
            batch = read_control_events(self._view, self._control.next_offset, end, lost.append)
            effects += lost
            if not batch:
                return [*effects, *self.deletions()]
            access = self._control.access
            for recorded in batch:
                before = access.unreadable
                evolve(self._control, recorded)
                effects += self._entailed(recorded)
                if access.unreadable != before and access.unreadable:
                    effects.append(
                        LogWarning("access-closed: %(reason)s", {"reason": why_closed(access)})
                    )

    def completed(self, leader_end: int) -> list[Effect]:
        """Serve clients from now on, if this follower has what its leader had when first seen.

        Until then it may lack the events about users. `leader_end` is the end of the leader's log,
        0 if it is not known.
        """
        control = self._control
        if not control.access.uncopied or not leader_end:
            return []
        # The log of another leader may be shorter: what only the former one had is lost.
        self._complete_at = min(self._complete_at or leader_end, leader_end)
        if min(self._confirmations.appended, self._view.dispatched) < self._complete_at:
            return []
        next_event = self._view.offset_position(CONTROL_TOPIC, 0, control.next_offset)
        if 0 <= next_event < self._complete_at:
            return []
        control.access.uncopied = False
        return [CopyCompleted()]

    def _entailed(self, recorded: Recorded) -> list[Effect]:
        """Do what a leader does when it records this event, as far as it applies to a follower."""
        event = recorded.event
        if isinstance(event, ProgressRecorded | OffsetsReset):
            yield_to(self._control.progress, event)
        self._apply([event])
        if isinstance(event, LogDeleted):
            self._deletions.append((recorded.position, event.end))
            return []
        return entailed_by(event, self._control)

    def deletions(self) -> list[Effect]:
        """Return the decided deletions that are committed by now."""
        due: list[Effect] = []
        waiting, confirmed = self._deletions, self._confirmations.confirmed
        while waiting and waiting[0][0] < confirmed:
            due.append(DeleteLogBefore(waiting.popleft()[1]))
        return due


REFUSED: tuple[type[Request], ...] = (
    sends.SendMessage,
    sends.SendRecords,
    sends.ConsumerSendMsgBack,
    sends.SendReplyMessage,
    sends.EndTransaction,
    sends.ResumeCheckHalfMessage,
    sends.PrepareBatch,
    sends.DecideBatch,
    sends.ResolveBatch,
    sends.AbortBatch,
    groups.LockBatchMq,
    groups.UnlockBatchMq,
    broker_admin.UpdateAndCreateTopic,
    broker_admin.DeleteTopicInBroker,
    groups.UpdateAndCreateSubscriptionGroup,
    groups.DeleteSubscriptionGroup,
    pulls.CloneGroupOffset,
    pulls.InvokeBrokerToResetOffset,
    broker_admin.UpdateBrokerConfig,
    broker_admin.DeleteExpiredCommitLog,
    filter_server.PutFilter,
    filter_server.ChangeFilter,
    filter_server.RecordFilterSkip,
    quotas.SetQuota,
    quotas.RemoveQuota,
    broker_admin.Undo,
)
"""Requests that change the log, which only its leader does."""


@dataclass(frozen=True, slots=True)
class FollowerRole:
    """The settings of a follower. `accept_cut_at`: see FollowerIdentity."""

    leader_address: str = ""
    accept_cut_at: int | None = None

    def confirmations(self, start: CommitStart) -> FollowedConfirmations:
        """Create the committed position: at first, everything counts as committed."""
        return FollowedConfirmations(start, start.end)

    def create(
        self, context: BrokerContext, pulls: PullHandler, apply: Callable[[Sequence[Event]], None]
    ) -> Role:
        """Create the role; `apply` applies the leader's decisions."""
        return StaticFollower(context, pulls, self, CopiedLog(context, apply))


class StaticFollower(Role):
    """Follows one leader.

    After its start, a follower serves everything that it has, because its leader may be down. As
    soon as the leader reports a committed position, it serves records up to there.
    """

    leads: ClassVar[bool] = False
    active = True
    writable = False

    def __init__(
        self, context: BrokerContext, pulls: PullHandler, settings: FollowerRole, log: CopiedLog
    ) -> None:
        super().__init__(context, pulls)
        self._settings = settings
        self._log = log
        replicas = context.control.replicas
        identity = FollowerIdentity(
            context.policy.cluster_name,
            context.policy.broker_name,
            context.policy.broker_id,
            accept_cut_at=settings.accept_cut_at,
        )
        first, _ = context.view.log_range()
        self.copying = Copying(
            identity, Epochs(replicas.epochs, context.appends.end), first, promised=self._promised
        )
        self._peer: Peer | None = None
        self._reported_refusal = ""
        self._reported_failure = ""
        self._leader_address = settings.leader_address
        self._epoch_elsewhere = 0
        context.appends.refuse(self._refusal, hint="send to the leader")

    @property
    def leader_address(self) -> str:
        """The leader's address, as far as it is known."""
        return self._leader_address

    @property
    def _refusal(self) -> str:
        at = f" at {self._leader_address}" if self._leader_address else ""
        return (
            f"this broker is a follower of {self._policy.broker_name}{at} and does "
            "not accept messages"
        )

    @property
    def epochs(self) -> Epochs:
        """The history of the accepted bytes."""
        return self.copying.epochs

    @property
    def is_copying(self) -> bool:
        """Whether it is attached to its leader and accepts its bytes."""
        return self.copying.step is FollowerStep.FOLLOWING

    def handlers(self) -> RoleHandlers:
        """Return the handlers that differ from a leader's."""
        return {
            **super().handlers(),
            **dict.fromkeys(REFUSED, self._refuse),
            LogChunk: self.chunk,
            Attached: self.attached,
        }

    def handle(self, now_ms: int, item: RoleInput) -> list[Effect]:
        """Handle news of the leader, and the results of writing its bytes."""
        match item:
            case LeaderConnected(peer, address):
                return self._connected(now_ms, peer, address)
            case Copied(end):
                self._reported_failure = ""
                self.copying.copied(end)
                self._log.copied(end)
            case NotCopied(end, reason):
                return self._not_copied(now_ms, end, reason)
            case Fenced(epoch):
                # Of a leader that a name server knows; the one that is followed may not know it.
                self._epoch_elsewhere = max(self._epoch_elsewhere, epoch)
        return []

    def _refuse(self, _now_ms: int, _received: Received, _request: Request) -> list[Effect]:
        raise NotLeader(self._refusal, hint="send the request to the leader")

    # -- the leader -------------------------------------------------------------------------------

    def _connected(self, now_ms: int, peer: Peer, address: str) -> list[Effect]:
        """Attach to the leader over a new connection; clients reach the leader at `address`."""
        self._peer = peer
        if address:
            self._leader_address = address
            self._appends.refuse(self._refusal, hint="send to the leader")
        return [self._message(self.copying.connected(now_ms))]

    def _check_promotion(self, now_ms: int, *, force: bool) -> tuple[int, int]:
        if not force:
            check_promotion(
                self._control.replicas,
                self._policy.broker_id,
                leader=self.leader_address,
                silent_ms=self.copying.silent_ms(now_ms),
            )
        return max(self.copying.epoch, self._epoch_elsewhere), self.copying.lag_bytes

    def _notify_leader(self, epoch: int) -> list[Effect]:
        if self._peer is None:
            return []
        policy = self._policy
        refusal = ChunkAck(
            group=policy.broker_name, epoch=epoch, member=str(policy.broker_id), accepted=False
        )
        return [Notify(self._peer, refusal)]

    def drop_peer(self, peer: Peer) -> None:
        """Handle a closed connection, perhaps the leader's."""
        if peer == self._peer:
            self._peer = None
            self.copying.disconnected()

    def attached(self, now_ms: int, received: Received, request: Attached) -> list[Effect]:
        """Handle the leader's reply to Attach: up to where both logs are the same."""
        if received.to.peer != self._peer:
            return []
        effects = [self._truncate(step) for step in self.copying.attached(now_ms, request)]
        return [*effects, *self._report_refusal()]

    def chunk(self, now_ms: int, received: Received, request: LogChunk) -> list[Effect]:
        """Handle bytes of the leader's log, or the leader's current positions."""
        if received.to.peer != self._peer:
            return []
        data = memoryview(b"".join(received.body) if len(received.body) != 1 else received.body[0])
        effects: list[Effect] = []
        for step in self.copying.chunk(now_ms, request, data):
            match step:
                case AppendBytes(position, end, run, damage):
                    effects.append(CopyChunk(position, end, run, damage))
                case SendToLeader():
                    effects.append(self._message(step))
        self._confirmations.confirmed_to(request.confirmed)
        return [*effects, *self._report_refusal()]

    def _message(self, step: SendToLeader) -> Effect:
        assert self._peer is not None
        return Notify(self._peer, step.message)

    def _truncate(self, step: TruncateTo | RestartAt) -> Effect:
        if isinstance(step, RestartAt):
            return step
        given_up = self._settings.accept_cut_at == step.position
        return TruncateLog(
            step.position, 0 if given_up else min(self._promised, self.copying.taken)
        )

    @property
    def _promised(self) -> int:
        """Below this position, senders may have replies that rely on this follower's copy."""
        return self._control.replicas.promised_to(self._policy.broker_id)

    def _report_refusal(self) -> list[Effect]:
        copying = self.copying
        if copying.step is FollowerStep.REFUSED and copying.reason != self._reported_refusal:
            self._reported_refusal = copying.reason
            return [
                LogWarning(
                    "replication-refused: this follower does not copy its leader's log: %(reason)s",
                    {"reason": copying.reason},
                )
            ]
        if copying.step is FollowerStep.FOLLOWING:
            self._reported_refusal = ""
        return []

    def _describe(self, view: ReplicasView, now_ms: int) -> ReplicasView:
        """Add where the leader is, and how far this follower lags."""
        copying = self.copying
        return msgspec.structs.replace(
            view,
            leader_address=self.leader_address,
            state=copying.step.name,
            reason=copying.reason,
            lag_bytes=copying.lag_bytes,
            lag_ms=copying.lag_ms(now_ms),
        )

    # -- the copy ---------------------------------------------------------------------------------

    def _not_copied(self, now_ms: int, end: int, reason: str) -> list[Effect]:
        """Note that the store could not write all bytes; its log ends at `end`."""
        self.copying.not_copied(now_ms, end)
        if reason == self._reported_failure:
            return []
        self._reported_failure = reason
        return [
            LogWarning(
                "replication-write-failed: data from the leader was not stored: %(error)s",
                {"error": reason},
            )
        ]

    def advanced(self, now_ms: int, queues: Queues) -> list[Effect]:
        """Apply new control events, then reply to readers of these queues."""
        effects = self._log.advanced(queues)
        self.copying.promised = self._promised
        completed = self._log.completed(self.copying.leader_end)
        return [*effects, *completed, *super().advanced(now_ms, queues)]

    # -- timers and batches -----------------------------------------------------------------------

    def tick(self, now_ms: int, _wall_ms: int) -> list[Effect]:
        """Repeat requests that the leader has not replied to; notice that the copy is complete."""
        effects = self._log.completed(self.copying.leader_end)
        if self._peer is None:
            return effects
        return [*effects, *(self._message(step) for step in self.copying.tick(now_ms))]

    def end_batch(self, now_ms: int) -> list[Effect]:
        """Report to the leader, flush if it waits for this disk, and notify readers."""
        self.copying.flushed_to(self._confirmations.flushed)
        effects: list[Effect] = self._log.deletions()
        if self.copying.wants_flush():
            effects.append(Flush())
        if self._peer is not None:
            effects += [self._message(step) for step in self.copying.acknowledge()]
        return [*effects, *self.committed(now_ms)] if self._uncommitted else effects
