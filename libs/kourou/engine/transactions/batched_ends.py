"""Stores ends of transactions that arrive in the same batch together.

A producer with many open transactions fills a batch with requests that resolve one half message
each. Each is checked separately; then all their records are numbered, written and projected at
once.

Invariants:
- records are in the order of the requests, and a committed message precedes its op record, so a log
  that is truncated anywhere has what it could have if the requests had come separately
- every producer gets the reply that it would get separately
- a request that cannot be combined is handled separately, in its place between the others: an end
  that is refused or whose outcome is unknown yet, one whose half message is not open or was open
  when the broker started, a traced request, one that names a half message of the group
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kourou.engine.effects import Effect
from kourou.engine.sends.appends import Appends
from kourou.engine.transactions.transaction_handler import Ending, Transactions
from kourou.errors import KourouError
from kourou.model.limits import BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
from kourou.protocol.messages.sends import EndTransaction
from kourou.runtime.inputs import Received

Alone = Callable[[int, Received], Sequence[Effect]]
_Group = dict[int, tuple[Received, Ending]]
"""By the queue offsets of the half messages, in the order of the requests."""

_ENDS_MAX = BATCH_MESSAGES_MAX // 2
"""Each end appends two records at most."""


class JointEnds:
    """Combines several ends into one append."""

    def __init__(self, transactions: Transactions, appends: Appends) -> None:
        self._transactions = transactions
        self._appends = appends

    def store(self, now_ms: int, ends: Sequence[Received], alone: Alone) -> list[Effect]:
        """Resolve these and reply, in their order; `alone` handles one separately."""
        effects: list[Effect] = []
        group: _Group = {}
        room_bytes = FRAME_RECORD_BYTES_MAX
        for received in ends:
            one = self._prepared(now_ms, received)
            goes_alone = one is None or one.half.offset in group
            if one is None or goes_alone or room_bytes < one.size_bytes or len(group) == _ENDS_MAX:
                effects += self._store(now_ms, group, alone)
                group, room_bytes = {}, FRAME_RECORD_BYTES_MAX
            if one is None or goes_alone:
                effects += alone(now_ms, received)
                continue
            room_bytes -= one.size_bytes
            group[one.half.offset] = received, one
        return effects + self._store(now_ms, group, alone)

    def _prepared(self, now_ms: int, received: Received) -> Ending | None:
        """Return what the end appends; None if it is handled separately."""
        request = received.request
        assert isinstance(request, EndTransaction)
        if received.to.traced or 0 < received.deadline_ms <= now_ms:
            return None
        try:
            return self._transactions.prepare(request)
        except KourouError:
            return None  # handled separately, it gets the error as a reply

    def _store(self, now_ms: int, group: _Group, alone: Alone) -> list[Effect]:
        if not group:
            return []
        wall_ms = max(received.wall_ms for received, _ in group.values())
        try:
            self._transactions.resolve([one for _, one in group.values()], wall_ms)
        except KourouError:  # no space, or a failed store: each gets its own error
            return [effect for received, _ in group.values() for effect in alone(now_ms, received)]
        effects = self._appends.take_done()
        for received, one in group.values():
            effects += self._transactions.answer(now_ms, received, one.record)
        return effects
