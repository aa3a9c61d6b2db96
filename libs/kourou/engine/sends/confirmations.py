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
from dataclasses import dataclass

from kourou.engine.effects import Effect, Flush
from kourou.errors import Code
from kourou.runtime.core import Reply


@dataclass(slots=True)
class _Owed:
    end: int
    deadline_ms: int
    reply: Reply


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
        "_owed",
        "appended",
        "flush_timeout_ms",
        "flushed",
        "staged",
        "sync_flush",
        "written",
    )

    def __init__(
        self,
        *,
        sync_flush: bool,
        flush_timeout_ms: int,
        end: int,
        flushed: int,
        staged: bool = False,
    ) -> None:
        assert flushed <= end
        assert not (staged and sync_flush), "who waits for the disk must not wait for a timer too"
        self.sync_flush = sync_flush
        self.staged = staged
        self.appended = self.written = end
        self.flushed = flushed
        self.flush_timeout_ms = flush_timeout_ms
        self._owed: deque[_Owed] = deque()
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
    def owed(self) -> int:
        """The number of pending replies."""
        return len(self._owed)

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

    def owe(
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
        self._owed.append(_Owed(end, now_ms + self.flush_timeout_ms, reply))
        self._flush_wanted = True
        return []

    def want_flush(self) -> list[Effect]:
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
        while self._owed and self._owed[0].end <= self.flushed:
            released.append(self._owed.popleft().reply)
        return released

    def confirmed_to(self, position: int) -> list[Effect]:
        """Handle a commit by a Raft group; never called here, because this broker has no group."""
        raise AssertionError(
            f"this broker has no group that commits its log, here up to {position}"
        )

    def fail(self, reason: str) -> list[Effect]:
        """Mark the store as failed; the outcome of all pending replies is unknown."""
        if self._failed is None:
            self._failed = reason
        answers: list[Effect] = []
        while self._owed:
            answers.append(unknown(self._owed.popleft().reply, reason))
        return answers

    def expire(self, now_ms: int) -> list[Effect]:
        """Release the replies that waited too long; their messages are stored all the same."""
        late: list[Effect] = []
        while self._owed and self._owed[0].deadline_ms <= now_ms:
            reply = self._owed.popleft().reply
            if reply.code == Code.SUCCESS:
                reply.code = Code.FLUSH_DISK_TIMEOUT
                reply.remark = "stored; the flush took longer than syncFlushTimeout"
            late.append(reply)
        return late


def unknown(reply: Reply, reason: str) -> Reply:
    """Return the reply for a message that may or may not be kept."""
    return Reply(reply.to, Code.OUTCOME_UNKNOWN, f"the outcome is unknown: {reason}")
