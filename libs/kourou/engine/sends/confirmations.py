"""Decides when replies to senders may go out: the committed position, and the pending replies.

State: soft. A broker that restarts owes no replies; senders retry with the same unique key.

Invariants:
- flushed <= written <= appended (positions)
- written == appended unless appends are staged
- confirmed never decreases
- after the store has failed, no position above the last flushed one is ever confirmed
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from kourou.engine.effects import Effect, Flush
from kourou.engine.ports import ANYWHERE, Quorum
from kourou.errors import Code
from kourou.runtime import Reply


@dataclass(slots=True)
class _PendingReply:
    end: int
    deadline_ms: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class CommitStart:
    """Where a log ends when its broker starts, and the broker's own rule of durability.

    `flushed` is what is on disk of it. The settings are explained in `Confirmations`.
    """

    end: int
    flushed: int
    sync_flush: bool = False
    flush_timeout_ms: int = 0
    staged: bool = False


class Confirmations:
    """Keeps replies until the bytes that they depend on are committed.

    `sync_flush` True: a position is committed when it is flushed; False: when it is written, which
    is when it is appended, unless appends are `staged` in memory first (transientStorePoolEnable).
    With staged appends, a sender gets its reply when the message is appended, and readers see only
    what survives a kill of the process.

    `flush_timeout_ms`: after that time a pending reply goes out as FLUSH_DISK_TIMEOUT, which means
    "stored, durability unknown".
    """

    __slots__ = (
        "_failed",
        "_flush_wanted",
        "_pending",
        "appended",
        "flush_timeout_ms",
        "flushed",
        "staged",
        "sync_flush",
        "written",
    )

    def __init__(self, start: CommitStart) -> None:
        assert start.flushed <= start.end
        assert not (start.staged and start.sync_flush), "a flush must not wait for a timer too"
        self.sync_flush = start.sync_flush
        self.staged = start.staged
        self.appended = self.written = start.end
        self.flushed = start.flushed
        self.flush_timeout_ms = start.flush_timeout_ms
        self._pending: deque[_PendingReply] = deque()
        self._flush_wanted = False
        self._failed: str | None = None

    @property
    def confirmed(self) -> int:
        """The committed position: readers see the records below it."""
        if self.sync_flush or self._failed is not None:
            return self.flushed
        return self.written

    @property
    def failed(self) -> str | None:
        """Why nothing more is stored; None while the store works."""
        return self._failed

    @property
    def pending(self) -> int:
        """The number of pending replies."""
        return len(self._pending)

    def append(self, end: int) -> None:
        """Set the end of the log."""
        assert end >= self.appended, (end, self.appended)
        self.appended = end
        if not self.staged:
            self.written = end

    def written_to(self, position: int) -> None:
        """Note that the staged bytes below `position` are in the log's files."""
        assert self.staged
        assert position <= self.appended, (position, self.appended)
        self.written = max(self.written, position)

    def defer(
        self, now_ms: int, end: int, reply: Reply, *, wait: bool = True, decision: bool = False
    ) -> list[Effect]:
        """Release `reply` once everything below `end` is committed, possibly at once.

        `wait` False is the sender's WAIT=false: the reply goes out when the message is appended,
        whatever the flush mode. `decision`: the reply is about a decision, not a message. A
        decision holds even if no follower copies it, which matters only where there are followers.
        After a failure of the store, the reply for unflushed bytes is "outcome unknown".
        """
        del decision
        if self._failed is not None and end > self.flushed:
            return [unknown(reply, self._failed)]
        if not (self.sync_flush and wait) or end <= self.flushed:
            return [reply]
        self._pending.append(_PendingReply(end, now_ms + self.flush_timeout_ms, reply))
        self._flush_wanted = True
        return []

    def take_flush(self) -> list[Effect]:
        """Return one flush effect per batch if a reply began to wait since the last one."""
        if not self._flush_wanted:
            return []
        self._flush_wanted = False
        return [Flush()]

    def flushed_to(self, position: int) -> list[Effect]:
        """Release the replies that waited for the disk, which has everything below `position`."""
        if self._failed is not None:
            return []
        assert position <= self.appended, (position, self.appended)
        self.flushed = max(self.flushed, position)
        released: list[Effect] = []
        while self._pending and self._pending[0].end <= self.flushed:
            released.append(self._pending.popleft().reply)
        return released

    def confirmed_to(self, position: int) -> list[Effect]:
        """Note that others have committed everything below `position`; no effect on this rule."""
        del position
        return []

    def copied_to(self, position: int, members: int) -> list[Effect]:
        """Note that in-sync followers have everything below `position`; no effect on this rule."""
        del position, members
        return []

    def fail(self, reason: str) -> list[Effect]:
        """Mark the store as failed; the outcome of all pending replies is unknown."""
        if self._failed is None:
            self._failed = reason
        answers: list[Effect] = []
        while self._pending:
            answers.append(unknown(self._pending.popleft().reply, reason))
        return answers

    def expire(self, now_ms: int) -> list[Effect]:
        """Release the replies that waited too long; their messages are stored all the same."""
        late: list[Effect] = []
        while self._pending and self._pending[0].deadline_ms <= now_ms:
            reply = self._pending.popleft().reply
            if reply.code == Code.SUCCESS:
                reply.code = Code.FLUSH_DISK_TIMEOUT
                reply.remark = "stored; the flush took longer than syncFlushTimeout"
            late.append(reply)
        return late


def unknown(reply: Reply, reason: str) -> Reply:
    """Return the reply for a message that may or may not be kept."""
    return Reply(reply.to, Code.OUTCOME_UNKNOWN, f"the outcome is unknown: {reason}")


_TEXTS = {
    Code.SLAVE_NOT_AVAILABLE: "stored; no follower is connected to replicate it",
    Code.FLUSH_SLAVE_TIMEOUT: "stored; no follower replicated it in time",
    Code.FLUSH_DISK_TIMEOUT: "stored; the flush took longer than syncFlushTimeout",
}


@dataclass(slots=True)
class _WaitingForOthers:
    """A reply that waits for other brokers. `code` will replace SUCCESS in it; 0: not known yet."""

    end: int
    since_ms: int
    reply: Reply
    decision: bool
    code: int = 0


class CopiedConfirmations(Confirmations):
    """The pending replies of a leader whose senders wait for followers.

    State: soft, as in kourou.engine.sends.confirmations. A broker whose senders do not wait for
    followers uses that class and does not pay for this one.

    A position is committed when it is committed by the leader's own rule (written, or flushed with
    SYNC_FLUSH) and every follower of the in-sync set has it. While the set is empty, the leader
    commits alone.

    A send while the set is empty gets the reply SLAVE_NOT_AVAILABLE. A send that waits when the
    last follower leaves the set, or longer than slaveTimeout, gets FLUSH_SLAVE_TIMEOUT: the message
    is stored, and is lost if the leader's disk is lost. As in RocketMQ, these codes take precedence
    over FLUSH_DISK_TIMEOUT. Decisions about topics and groups wait in the same way, but hold even
    if no follower has them: their reply is a success.

    Invariants:
    - those of Confirmations
    - when a reply with SUCCESS goes to a sender that waits, every follower of a set that was not
      empty has the sender's bytes

    `slave_timeout_ms` (slaveTimeout) is how long a sender waits for followers.
    """

    __slots__ = ("_copied", "_floor", "_waiting", "members", "slave_timeout_ms")

    def __init__(self, start: CommitStart, slave_timeout_ms: int) -> None:
        super().__init__(start)
        self.slave_timeout_ms = slave_timeout_ms
        self.members = 0
        self._copied = ANYWHERE
        self._floor = super().confirmed
        self._waiting: deque[_WaitingForOthers] = deque()

    @property
    def confirmed(self) -> int:
        """The committed position: readers see the records below it."""
        own = super().confirmed
        found = max(self._floor, min(own, self._copied))
        return found if self._failed is None else min(found, own)

    @property
    def copied(self) -> int:
        """Every in-sync follower has the bytes below it; ANYWHERE while there is none."""
        return self._copied

    @property
    def pending(self) -> int:
        """The number of pending replies."""
        return len(self._waiting)

    def defer(
        self, now_ms: int, end: int, reply: Reply, *, wait: bool = True, decision: bool = False
    ) -> list[Effect]:
        """Release `reply` once everything below `end` is committed, possibly at once."""
        if self._failed is not None and end > self.flushed:
            return [unknown(reply, self._failed)]
        if not wait:
            return [reply]
        one = _WaitingForOthers(end, now_ms, reply, decision)
        if not self.members and not decision:
            one.code = Code.SLAVE_NOT_AVAILABLE
        if not self._waiting and end <= self._safe:
            return [_missing_replica(one)]
        self._waiting.append(one)
        self._flush_wanted = self._flush_wanted or (self.sync_flush and end > self.flushed)
        return []

    def flushed_to(self, position: int) -> list[Effect]:
        """Release the replies that waited for the disk, which has everything below `position`."""
        super().flushed_to(position)
        return [] if self._failed is not None else self._release()

    def copied_to(self, position: int, members: int) -> list[Effect]:
        """Note that `members` in-sync followers have everything below `position`.

        Without followers `position` is ignored. When the last follower leaves, replies stop waiting
        for it.
        """
        self._floor = self.confirmed
        left = self.members and not members
        self.members = members
        self._copied = position if members else ANYWHERE
        if left:
            for one in self._waiting:
                if not one.decision and not one.code:
                    one.code = Code.FLUSH_SLAVE_TIMEOUT
        return [] if self._failed is not None else self._release()

    def fail(self, reason: str) -> list[Effect]:
        """Mark the store as failed; the outcome of all pending replies is unknown."""
        super().fail(reason)
        waiting, self._waiting = self._waiting, deque()
        return [unknown(one.reply, reason) for one in waiting]

    def expire(self, now_ms: int) -> list[Effect]:
        """Release the replies that waited too long; their messages are stored all the same.

        The reply to a decision waits until the followers have it or the last one has left.
        """
        late: list[Effect] = []
        kept: list[_WaitingForOthers] = []
        while self._waiting:
            one = self._waiting[0]
            uncopied = one.end > self._copied
            limit_ms = self.slave_timeout_ms if uncopied else self.flush_timeout_ms
            if one.since_ms + limit_ms > now_ms:
                break
            self._waiting.popleft()
            if uncopied and one.decision:
                kept.append(one)
                continue
            one.code = one.code or (
                Code.FLUSH_SLAVE_TIMEOUT if uncopied else Code.FLUSH_DISK_TIMEOUT
            )
            late.append(_missing_replica(one))
        self._waiting.extendleft(reversed(kept))
        return late

    @property
    def _safe(self) -> int:
        """Up to this position, waiting senders get their replies."""
        own = self.flushed if self.sync_flush else self.appended
        return min(own, self._copied)

    def _release(self) -> list[Effect]:
        released: list[Effect] = []
        safe = self._safe
        while self._waiting and self._waiting[0].end <= safe:
            released.append(_missing_replica(self._waiting.popleft()))
        return released


def _missing_replica(one: _WaitingForOthers) -> Reply:
    reply = one.reply
    if one.code and reply.code == Code.SUCCESS:
        reply.code = one.code
        reply.remark = _TEXTS[Code(one.code)]
    return reply


_LATE = "stored here; no majority replicated it in time"


class QuorumConfirmations(Confirmations):
    """The pending replies of a Raft leader. `slave_timeout_ms`: how long a sender waits.

    State: soft, as in kourou.engine.sends.confirmations.

    A position is committed when the group has committed it; never because this broker alone has it,
    not even at a start. A reply goes out when everything below its record is committed, and this
    replica is certainly the leader at that moment.

    A sender that waits for slaveTimeout gets FLUSH_SLAVE_TIMEOUT: the message is stored here, and
    the group may or may not keep it. A request that is not a message gets OUTCOME_UNKNOWN then.
    When this replica no longer leads, all pending replies become OUTCOME_UNKNOWN: another leader
    may have the records, or may truncate them.

    Invariants:
    - confirmed never decreases
    - when a reply with SUCCESS goes to a sender that waits, a majority has its bytes on disk, and
      no other replica leads
    """

    __slots__ = ("_confirmed", "_quorum", "_waiting", "slave_timeout_ms")

    def __init__(self, quorum: Quorum, start: CommitStart, slave_timeout_ms: int) -> None:
        super().__init__(replace(start, sync_flush=False, staged=False))
        self.slave_timeout_ms = slave_timeout_ms
        self._quorum = quorum
        self._confirmed = min(quorum.confirmed, start.end)
        self._waiting: deque[_WaitingForOthers] = deque()

    @property
    def confirmed(self) -> int:
        """The committed position: readers see the records below it."""
        return self._confirmed

    @property
    def pending(self) -> int:
        """The number of pending replies."""
        return len(self._waiting)

    def defer(
        self, now_ms: int, end: int, reply: Reply, *, wait: bool = True, decision: bool = False
    ) -> list[Effect]:
        """Release `reply` once everything below `end` is committed, possibly at once.

        No flush is requested, because the Raft node flushes and ships appends at once.
        """
        if self._failed is not None:
            return [unknown(reply, self._failed)]
        if not wait:
            return [reply]
        self._waiting.append(_WaitingForOthers(end, now_ms, reply, decision))
        return self._release() if len(self._waiting) == 1 else []

    def confirmed_to(self, position: int) -> list[Effect]:
        """Release the replies that waited for the group, which has committed up to `position`."""
        assert position <= self.appended, (position, self.appended)
        self._confirmed = max(self._confirmed, position)
        return self._release()

    def flushed_to(self, position: int) -> list[Effect]:
        """Note that this disk has everything below `position`; alone, that commits nothing."""
        super().flushed_to(position)
        return []

    def fail(self, reason: str) -> list[Effect]:
        """Mark the store as failed, or the lead as lost; all pending outcomes are unknown."""
        super().fail(reason)
        waiting, self._waiting = self._waiting, deque()
        return [unknown(one.reply, self._failed or reason) for one in waiting]

    def expire(self, now_ms: int) -> list[Effect]:
        """Release replies that waited too long, or only for certainty about the leader."""
        answers = self._release()
        while self._waiting and self._waiting[0].since_ms + self.slave_timeout_ms <= now_ms:
            answers.append(_missing_quorum(self._waiting.popleft()))
        return answers

    def _release(self) -> list[Effect]:
        waiting = self._waiting
        if not waiting or waiting[0].end > self._confirmed or not self._quorum.may_acknowledge():
            return []
        released: list[Effect] = []
        while waiting and waiting[0].end <= self._confirmed:
            released.append(waiting.popleft().reply)
        return released


def _missing_quorum(one: _WaitingForOthers) -> Reply:
    reply = one.reply
    if one.decision:
        return unknown(reply, _LATE)
    if reply.code == Code.SUCCESS:
        reply.code = Code.FLUSH_SLAVE_TIMEOUT
        reply.remark = _LATE
    return reply
