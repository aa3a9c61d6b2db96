"""The core of a static follower, which copies the log of its configured leader.

State: projection of the copied log, by the same `evolve` as on a leader; soft: the leader's
address, and the newest promotion, which name servers report again with every registration.

A follower assigns no numbers: Appends refuses, so that no handler can write by mistake. Timed
decisions of a broker do not run: delayed messages, check-backs, expiry. When the leader deletes a
part of its log, that is an event, and the follower deletes the same part.

Offsets that consumers commit here are kept in memory until the leader's event for the same queue
arrives.

Becoming a leader is a restart: the core is created again from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from kourou.engine.context import BrokerContext
from kourou.engine.effects import BeginLog, CopyChunk, CutLog, Effect, Flush
from kourou.engine.roles.copied_log import CopiedLog, FollowedConfirmations
from kourou.engine.sends.confirmations import CommitStart
from kourou.errors import NotLeader
from kourou.protocol.bodies.broker_bodies import ReplicasView
from kourou.protocol.messages import broker_admin, filter_server, groups, pulls, quotas, sends
from kourou.protocol.messages.replication import Attached, ChunkAck, LogChunk
from kourou.protocol.request import Request
from kourou.replication.epochs import Epochs
from kourou.replication.static_follower import (
    BeginAt,
    Copying,
    CutTo,
    FollowerIdentity,
    FollowerStep,
    Say,
    Take,
)
from kourou.runtime.core import LogWarning, Notify, Peer, Received

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


class StaticFollower:
    """Follows one leader.

    After its start, a follower serves everything that it has, because its leader may be down. As
    soon as the leader reports a committed position, it serves records up to there.
    """

    active = True

    def __init__(self, context: BrokerContext, role: FollowerRole, log: CopiedLog) -> None:
        assert isinstance(context.confirmations, FollowedConfirmations)
        self._role = role
        self._policy = context.policy
        self._control = context.control
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._log = log
        replicas = context.control.replicas
        member = FollowerIdentity(
            context.policy.cluster_name,
            context.policy.broker_name,
            context.policy.broker_id,
            accept_cut_at=role.accept_cut_at,
        )
        first, _ = context.view.log_range()
        self.copying = Copying(
            member, Epochs(replicas.epochs, context.appends.end), first, promised=self._promised
        )
        self._peer: Peer | None = None
        self._reported = ""
        self._not_copied = ""
        self._leader_address = role.leader_address
        self._elsewhere = 0
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

    def handlers(self) -> Mapping[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handlers that differ from a leader's."""
        return {
            **dict.fromkeys(REFUSED, self._refuse),
            LogChunk: self.chunk,
            Attached: self.attached,
        }

    def _refuse(self, _now_ms: int, _received: Received, _request: Request) -> list[Effect]:
        raise NotLeader(self._refusal, hint="send the request to the leader")

    # -- the leader -------------------------------------------------------------------------------

    def connected(self, now_ms: int, peer: Peer, address: str = "") -> list[Effect]:
        """Attach to the leader over a new connection; clients reach the leader at `address`."""
        self._peer = peer
        if address:
            self._leader_address = address
            self._appends.refuse(self._refusal, hint="send to the leader")
        return [self._said(self.copying.connected(now_ms))]

    def outdone(self, epoch: int) -> list[Effect]:
        """Note an epoch that a name server knows; the leader may not have had it."""
        self._elsewhere = max(self._elsewhere, epoch)
        return []

    @property
    def heard(self) -> int:
        """The highest known epoch; a promotion must use a higher one."""
        return max(self.copying.epoch, self._elsewhere)

    def outdo(self, epoch: int) -> list[Effect]:
        """Tell the leader that this follower opens `epoch`, so that it stops writing at once."""
        if self._peer is None:
            return []
        policy = self._policy
        word = ChunkAck(
            group=policy.broker_name, epoch=epoch, member=str(policy.broker_id), accepted=False
        )
        return [Notify(self._peer, word)]

    def drop_peer(self, peer: Peer) -> None:
        """Handle a closed connection, perhaps the leader's."""
        if peer == self._peer:
            self._peer = None
            self.copying.disconnected()

    def attached(self, now_ms: int, received: Received, request: Attached) -> list[Effect]:
        """Handle the leader's reply to Attach: up to where both logs are the same."""
        if received.to.peer != self._peer:
            return []
        effects = [self._cut(each) for each in self.copying.attached(now_ms, request)]
        return [*effects, *self._tell()]

    def chunk(self, now_ms: int, received: Received, request: LogChunk) -> list[Effect]:
        """Handle bytes of the leader's log, or the leader's current positions."""
        if received.to.peer != self._peer:
            return []
        data = memoryview(b"".join(received.body) if len(received.body) != 1 else received.body[0])
        effects: list[Effect] = []
        for each in self.copying.chunk(now_ms, request, data):
            match each:
                case Take(position, end, taken, damage):
                    effects.append(CopyChunk(position, end, taken, damage))
                case Say():
                    effects.append(self._said(each))
        self._confirmations.reported = max(self._confirmations.reported, request.confirmed)
        return [*effects, *self._tell()]

    def _said(self, say: Say) -> Effect:
        assert self._peer is not None
        return Notify(self._peer, say.message)

    def _cut(self, cut: CutTo | BeginAt) -> Effect:
        if isinstance(cut, BeginAt):
            return BeginLog(cut.position, cut.common)
        given_up = self._role.accept_cut_at == cut.position
        return CutLog(cut.position, 0 if given_up else min(self._promised, self.copying.taken))

    @property
    def _promised(self) -> int:
        """Below this position, senders may have replies that rely on this follower's copy."""
        return self._control.replicas.promised_to(self._policy.broker_id)

    def _tell(self) -> list[Effect]:
        copying = self.copying
        if copying.step is FollowerStep.REFUSED and copying.reason != self._reported:
            self._reported = copying.reason
            return [
                LogWarning(
                    "replication-refused: this follower does not copy its leader's log: %(reason)s",
                    {"reason": copying.reason},
                )
            ]
        if copying.step is FollowerStep.FOLLOWING:
            self._reported = ""
        return []

    def describe(self, view: ReplicasView, now_ms: int) -> ReplicasView:
        """Add where the leader is, and how far this follower lags."""
        copying = self.copying
        return replace(
            view,
            leader_address=self.leader_address,
            state=copying.step.name,
            reason=copying.reason,
            lag_bytes=copying.lag_bytes,
            lag_ms=copying.lag_ms(now_ms),
        )

    # -- the copy ---------------------------------------------------------------------------------

    def copied(self, end: int) -> None:
        """Note that the store has the accepted bytes up to `end`."""
        self._not_copied = ""
        self.copying.copied(end)
        self._log.copied(end)

    def not_copied(self, now_ms: int, end: int, reason: str) -> list[Effect]:
        """Note that the store could not write all bytes; its log ends at `end`."""
        self.copying.not_copied(now_ms, end)
        if reason == self._not_copied:
            return []
        self._not_copied = reason
        return [
            LogWarning(
                "replication-write-failed: data from the leader was not stored: %(error)s",
                {"error": reason},
            )
        ]

    def advanced(self, queues: Sequence[tuple[str, int, int]]) -> list[Effect]:
        """Apply new control events, if the queue of control events has advanced."""
        effects = self._log.advanced(queues)
        self.copying.promised = self._promised
        return effects

    # -- timers and batches -----------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Effect]:
        """Repeat requests that the leader has not replied to."""
        if self._peer is None:
            return []
        return [self._said(each) for each in self.copying.tick(now_ms)]

    def turn(self, _now_ms: int) -> list[Effect]:
        """End a batch: report to the leader, and flush if it waits for this disk."""
        self.copying.flushed_to(self._confirmations.flushed)
        effects: list[Effect] = self._log.deletions()
        if self.copying.wants_flush():
            effects.append(Flush())
        if self._peer is not None:
            effects += [self._said(each) for each in self.copying.turn()]
        return effects
