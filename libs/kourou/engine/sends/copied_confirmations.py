"""Pending replies of a leader whose senders also wait for followers (brokerRole=SYNC_MASTER).

State: soft, as in kourou.engine.sends.confirmations. A broker whose senders do not wait for
followers uses that class and does not pay for this one.

A position is committed when it is committed by the leader's own rule (written, or flushed with
SYNC_FLUSH) and every follower of the in-sync set has it. While the set is empty, the leader commits
alone.

A send while the set is empty gets the reply SLAVE_NOT_AVAILABLE. A send that waits when the last
follower leaves the set, or longer than slaveTimeout, gets FLUSH_SLAVE_TIMEOUT: the message is
stored, and is lost if the leader's disk is lost. As in RocketMQ, these codes take precedence over
FLUSH_DISK_TIMEOUT. Decisions about topics and groups wait in the same way, but hold even if no
follower has them: their reply is a success.

Invariants:
- those of Confirmations
- when a reply with SUCCESS goes to a sender that waits, every follower of a set that was not empty
  has the sender's bytes
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kourou.engine.effects import Effect
from kourou.engine.ports import ANYWHERE
from kourou.engine.sends.confirmations import Confirmations, unknown
from kourou.errors import Code
from kourou.runtime.core import Reply

_TEXTS = {
    Code.SLAVE_NOT_AVAILABLE: "stored; no follower is connected to replicate it",
    Code.FLUSH_SLAVE_TIMEOUT: "stored; no follower replicated it in time",
    Code.FLUSH_DISK_TIMEOUT: "stored; the flush took longer than syncFlushTimeout",
}


@dataclass(slots=True)
class _Waiting:
    """A pending reply. `code` will replace SUCCESS in it; 0 while that is not known."""

    end: int
    since_ms: int
    reply: Reply
    decision: bool
    code: int = 0


class CopiedConfirmations(Confirmations):
    """The pending replies of a leader whose senders wait for followers.

    `slave_timeout_ms` (slaveTimeout) is how long a sender waits for followers.
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
        """The committed position: readers see the records below it."""
        own = super().confirmed
        found = max(self._floor, min(own, self._copied))
        return found if self._failed is None else min(found, own)

    @property
    def copied(self) -> int:
        """Every in-sync follower has the bytes below it; ANYWHERE while there is none."""
        return self._copied

    @property
    def owed(self) -> int:
        """The number of pending replies."""
        return len(self._waiting)

    def owe(
        self, now_ms: int, end: int, reply: Reply, *, wait: bool = True, decision: bool = False
    ) -> list[Effect]:
        """Release `reply` once everything below `end` is committed, possibly at once."""
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
        """Up to this position, waiting senders get their replies."""
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
