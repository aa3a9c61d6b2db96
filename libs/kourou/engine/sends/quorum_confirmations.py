"""Pending replies to senders whose records a majority of a Raft group must have.

State: soft, as in kourou.engine.sends.confirmations.

A position is committed when the group has committed it; never because this broker alone has it, not
even at a start. A reply goes out when everything below its record is committed, and this replica is
certainly the leader at that moment.

A sender that waits for slaveTimeout gets FLUSH_SLAVE_TIMEOUT: the message is stored here, and the
group may or may not keep it. A request that is not a message gets OUTCOME_UNKNOWN then. When this
replica no longer leads, all pending replies become OUTCOME_UNKNOWN: another leader may have the
records, or may truncate them.

Invariants:
- confirmed never decreases
- when a reply with SUCCESS goes to a sender that waits, a majority has its bytes on disk, and no
  other replica leads
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kourou.engine.effects import Effect
from kourou.engine.ports import Quorum
from kourou.engine.sends.confirmations import Confirmations, unknown
from kourou.errors import Code
from kourou.runtime.core import Reply

_LATE = "stored here; no majority replicated it in time"


@dataclass(slots=True)
class _Waiting:
    end: int
    since_ms: int
    reply: Reply
    decision: bool


class QuorumConfirmations(Confirmations):
    """The pending replies of a Raft leader. `slave_timeout_ms`: how long a sender waits."""

    __slots__ = ("_confirmed", "_quorum", "_waiting", "slave_timeout_ms")

    def __init__(
        self,
        quorum: Quorum,
        *,
        flush_timeout_ms: int,
        end: int,
        flushed: int,
        slave_timeout_ms: int,
    ) -> None:
        super().__init__(
            sync_flush=False, flush_timeout_ms=flush_timeout_ms, end=end, flushed=flushed
        )
        self.slave_timeout_ms = slave_timeout_ms
        self._quorum = quorum
        self._confirmed = min(quorum.confirmed, end)
        self._waiting: deque[_Waiting] = deque()

    @property
    def confirmed(self) -> int:
        """The committed position: readers see the records below it."""
        return self._confirmed

    @property
    def owed(self) -> int:
        """The number of pending replies."""
        return len(self._waiting)

    def owe(
        self, now_ms: int, end: int, reply: Reply, *, wait: bool = True, decision: bool = False
    ) -> list[Effect]:
        """Release `reply` once everything below `end` is committed, possibly at once.

        No flush is requested, because the Raft node flushes and ships appends at once.
        """
        if self._failed is not None:
            return [unknown(reply, self._failed)]
        if not wait:
            return [reply]
        self._waiting.append(_Waiting(end, now_ms, reply, decision))
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
            answers.append(_late(self._waiting.popleft()))
        return answers

    def _release(self) -> list[Effect]:
        waiting = self._waiting
        if not waiting or waiting[0].end > self._confirmed or not self._quorum.may_acknowledge():
            return []
        released: list[Effect] = []
        while waiting and waiting[0].end <= self._confirmed:
            released.append(waiting.popleft().reply)
        return released


def _late(one: _Waiting) -> Reply:
    reply = one.reply
    if one.decision:
        return unknown(reply, _LATE)
    if reply.code == Code.SUCCESS:
        reply.code = Code.FLUSH_SLAVE_TIMEOUT
        reply.remark = _LATE
    return reply
