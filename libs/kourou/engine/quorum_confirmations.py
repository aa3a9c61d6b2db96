"""When may a sender be answered whose records a majority of a Raft group has to hold?

State: soft, as in kourou.engine.confirmations.

    confirmed   what the group has confirmed; never what only this broker has, not even at a start
    answered    everything below is confirmed, and this member surely leads at that very moment

Whoever waits for slaveTimeout is told FLUSH_SLAVE_TIMEOUT: it is stored here, and whether the group
keeps it is open. What is no message is told OUTCOME_UNKNOWN then. When this member leads no more,
everybody who waits is told that: another leader may have what they sent, or cut it.

Invariants:  confirmed never decreases
             a reply with SUCCESS to a sender that waits: a majority had its bytes on disk when it
             left, and no other member led
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kourou.engine.confirmations import Confirmations, unknown
from kourou.engine.effects import Effect
from kourou.engine.ports import Quorum
from kourou.errors import Code
from kourou.runtime.effects import Reply

_LATE = "stored here; no majority replicated it in time"


@dataclass(slots=True)
class _Waiting:
    end: int
    since_ms: int
    reply: Reply
    decision: bool


class QuorumConfirmations(Confirmations):
    """Confirmations of a member that leads. `slave_timeout_ms`: so long a sender waits."""

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
        """Readers see what lies below this position."""
        return self._confirmed

    @property
    def owed(self) -> int:
        """How many replies wait."""
        return len(self._waiting)

    def owe(
        self, now_ms: int, end: int, reply: Reply, *, wait: bool = True, decision: bool = False
    ) -> list[Effect]:
        """Release `reply` once everything below `end` is confirmed; perhaps that is now.

        Nothing is to be asked for: whoever appends for a group flushes and ships at once.
        """
        if self._failed is not None:
            return [unknown(reply, self._failed)]
        if not wait:
            return [reply]
        self._waiting.append(_Waiting(end, now_ms, reply, decision))
        return self._release() if len(self._waiting) == 1 else []

    def confirmed_to(self, position: int) -> list[Effect]:
        """The group holds everything below `position` for good."""
        assert position <= self.appended, (position, self.appended)
        self._confirmed = max(self._confirmed, position)
        return self._release()

    def flushed_to(self, position: int) -> list[Effect]:
        """The own disk holds everything below `position`; alone, that confirms nothing."""
        super().flushed_to(position)
        return []

    def fail(self, reason: str) -> list[Effect]:
        """The store has failed, or another member leads: nobody who waits learns more than that."""
        super().fail(reason)
        waiting, self._waiting = self._waiting, deque()
        return [unknown(one.reply, self._failed or reason) for one in waiting]

    def expire(self, now_ms: int) -> list[Effect]:
        """Answer those who waited too long; and those who only waited for a sure lead."""
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
