"""When may a sender be answered that waits for followers, too? (brokerRole=SYNC_MASTER)

State: soft, as in kourou.engine.confirmations. A broker that waits for nobody's copies uses that
class and pays nothing for this one.

    confirmed   what the leader's own rule says (written, or flushed with SYNC_FLUSH), and every
                member of the in-sync set has; while the set is empty the leader confirms alone

Whoever sends while nobody is in the set is told SLAVE_NOT_AVAILABLE, and whoever waits when the
last member leaves, or for slaveTimeout, FLUSH_SLAVE_TIMEOUT: stored, and with the leader's disk it
may be lost. That comes before FLUSH_DISK_TIMEOUT (fact sheet §6.2). Decisions about topics and
groups wait alike, but stand when nobody copies them: they are told as done.

Invariants:  those of Confirmations
             a reply with SUCCESS to a sender that waits: every member of a set that was not empty
             had its bytes when it left
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kourou.engine.confirmations import Confirmations, unknown
from kourou.engine.effects import Effect
from kourou.engine.ports import ANYWHERE
from kourou.errors import Code
from kourou.runtime.effects import Reply

_TEXTS = {
    Code.SLAVE_NOT_AVAILABLE: "stored; no follower is connected to replicate it",
    Code.FLUSH_SLAVE_TIMEOUT: "stored; no follower replicated it in time",
    Code.FLUSH_DISK_TIMEOUT: "stored; the flush took longer than syncFlushTimeout",
}


@dataclass(slots=True)
class _Waiting:
    """`code` is what the reply will say in place of SUCCESS, once that is clear; 0 so far."""

    end: int
    since_ms: int
    reply: Reply
    decision: bool
    code: int = 0


class CopiedConfirmations(Confirmations):
    """Confirmations of a leader whose senders wait for copies.

    `slave_timeout_ms` (slaveTimeout): so long a sender waits for copies.
    """

    __slots__ = ("_copied", "_floor", "_waiting", "members", "slave_timeout_ms")

    def __init__(
        self,
        *,
        sync_flush: bool,
        flush_timeout_ms: int,
        end: int,
        flushed: int,
        staged: bool = False,
        slave_timeout_ms: int,
    ) -> None:
        super().__init__(
            sync_flush=sync_flush,
            flush_timeout_ms=flush_timeout_ms,
            end=end,
            flushed=flushed,
            staged=staged,
        )
        self.slave_timeout_ms = slave_timeout_ms
        self.members = 0
        self._copied = ANYWHERE
        self._floor = super().confirmed
        self._waiting: deque[_Waiting] = deque()

    @property
    def confirmed(self) -> int:
        """Readers see what lies below this position."""
        own = super().confirmed
        found = max(self._floor, min(own, self._copied))
        return found if self._failed is None else min(found, own)

    @property
    def copied(self) -> int:
        """Every member has what lies below; ANYWHERE while there is none."""
        return self._copied

    @property
    def owed(self) -> int:
        """How many replies wait."""
        return len(self._waiting)

    def owe(
        self, now_ms: int, end: int, reply: Reply, *, wait: bool = True, decision: bool = False
    ) -> list[Effect]:
        """Release `reply` once everything below `end` is confirmed; perhaps that is now."""
        if self._failed is not None and end > self.flushed:
            return [unknown(reply, self._failed)]
        if not wait:
            return [reply]
        one = _Waiting(end, now_ms, reply, decision)
        if not self.members and not decision:
            one.code = Code.SLAVE_NOT_AVAILABLE
        if not self._waiting and end <= self._safe:
            return [_told(one)]
        self._waiting.append(one)
        self._flush_wanted = self._flush_wanted or (self.sync_flush and end > self.flushed)
        return []

    def flushed_to(self, position: int) -> list[Effect]:
        """The disk holds everything below `position`."""
        super().flushed_to(position)
        return [] if self._failed is not None else self._release()

    def copied_to(self, position: int, members: int) -> list[Effect]:
        """Each of so many members has what lies below `position`; without any it means nothing.

        When the last one leaves, whoever waits for its copy does so no longer.
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
        """The store has failed: every waiting sender learns that the outcome is unknown."""
        super().fail(reason)
        waiting, self._waiting = self._waiting, deque()
        return [unknown(one.reply, reason) for one in waiting]

    def expire(self, now_ms: int) -> list[Effect]:
        """Answer those who waited too long; their message is stored all the same.

        A decision is not answered before it is confirmed or the last member has left.
        """
        late: list[Effect] = []
        kept: list[_Waiting] = []
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
            late.append(_told(one))
        self._waiting.extendleft(reversed(kept))
        return late

    @property
    def _safe(self) -> int:
        """A sender that waits is answered up to here."""
        own = self.flushed if self.sync_flush else self.appended
        return min(own, self._copied)

    def _release(self) -> list[Effect]:
        released: list[Effect] = []
        safe = self._safe
        while self._waiting and self._waiting[0].end <= safe:
            released.append(_told(self._waiting.popleft()))
        return released


def _told(one: _Waiting) -> Reply:
    reply = one.reply
    if one.code and reply.code == Code.SUCCESS:
        reply.code = one.code
        reply.remark = _TEXTS[Code(one.code)]
    return reply
