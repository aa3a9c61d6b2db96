"""When may a sender be answered?

State: soft. A broker that restarts owes no replies; senders ask again with the same unique key.

Invariants:  flushed <= written <= appended      (positions)
             written == appended unless appends are staged
             confirmed never decreases
             once the store has failed, nothing above the last flushed position is ever confirmed
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kourou.engine.effects import Effect, Flush
from kourou.errors import Code
from kourou.runtime.effects import Reply


@dataclass(slots=True)
class _Owed:
    end: int
    deadline_ms: int
    reply: Reply


class Confirmations:
    """Replies that wait until enough has happened to their bytes.

    `sync_flush` True: a position is confirmed when it is flushed; False: when it is written, which
    is when it is appended, unless appends are `staged` in memory first (transientStorePoolEnable).
    Then a sender is answered when appended, and readers see what a kill of the process leaves.
    `flush_timeout_ms`: after that a waiting reply goes out as FLUSH_DISK_TIMEOUT, which means
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
        """Readers see what lies below this position."""
        if self.sync_flush or self._failed is not None:
            return self.flushed
        return self.written

    @property
    def failed(self) -> str | None:
        """Why nothing more is stored; None while all is well."""
        return self._failed

    @property
    def owed(self) -> int:
        """How many replies wait."""
        return len(self._owed)

    def append(self, end: int) -> None:
        """The log now ends at `end`."""
        assert end >= self.appended, (end, self.appended)
        self.appended = end
        if not self.staged:
            self.written = end

    def written_to(self, position: int) -> None:
        """What was staged below `position` is in the log's files."""
        assert self.staged
        assert position <= self.appended, (position, self.appended)
        self.written = max(self.written, position)

    def owe(
        self, now_ms: int, end: int, reply: Reply, *, wait: bool = True, decision: bool = False
    ) -> list[Effect]:
        """Release `reply` once everything below `end` is confirmed; perhaps that is now.

        `wait` False is the sender's WAIT=false: answered when appended, whatever the flush mode.
        `decision`: what is answered is no message but stands whoever copies it, which matters where
        there are followers. After a failure what is not flushed is promised to nobody.
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
        """At the end of a batch: one flush effect if a reply began to wait since the last one."""
        if not self._flush_wanted:
            return []
        self._flush_wanted = False
        return [Flush()]

    def flushed_to(self, position: int) -> list[Effect]:
        """The disk holds everything below `position`."""
        if self._failed is not None:
            return []
        assert position <= self.appended, (position, self.appended)
        self.flushed = max(self.flushed, position)
        released: list[Effect] = []
        while self._owed and self._owed[0].end <= self.flushed:
            released.append(self._owed.popleft().reply)
        return released

    def confirmed_to(self, position: int) -> list[Effect]:
        """The Raft group holds everything below `position` for good, where there is one."""
        raise AssertionError(
            f"this broker has no group that commits its log, here up to {position}"
        )

    def fail(self, reason: str) -> list[Effect]:
        """The store has failed: every waiting sender learns that the outcome is unknown."""
        if self._failed is None:
            self._failed = reason
        answers: list[Effect] = []
        while self._owed:
            answers.append(unknown(self._owed.popleft().reply, reason))
        return answers

    def expire(self, now_ms: int) -> list[Effect]:
        """Answer those who waited too long; their message is stored all the same."""
        late: list[Effect] = []
        while self._owed and self._owed[0].deadline_ms <= now_ms:
            reply = self._owed.popleft().reply
            if reply.code == Code.SUCCESS:
                reply.code = Code.FLUSH_DISK_TIMEOUT
                reply.remark = "stored; the flush took longer than syncFlushTimeout"
            late.append(reply)
        return late


def unknown(reply: Reply, reason: str) -> Reply:
    """What a sender is told when nobody can say whether its message is kept."""
    return Reply(reply.to, Code.OUTCOME_UNKNOWN, f"the outcome is unknown: {reason}")
