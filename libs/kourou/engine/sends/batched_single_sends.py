"""Stores single messages of RocketMQ clients that arrive in the same batch together.

A RocketMQ producer that does not wait for replies fills a batch with requests of one message each.
Each is checked separately; then all of them are numbered, stamped, written and projected together,
which is most of what a send costs. RocketMQ's encoded batches are combined with all their messages.

Invariants:
- messages are stored in the order in which they were sent
- every sender gets the reply that it would get separately
- a message that cannot be combined is handled separately, in its place between the others: the half
  message that creates the topics of transactions, a refused message, a traced one

State: none of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from kourou.engine.effects import Effect
from kourou.engine.sends.appends import Appends, Target
from kourou.engine.sends.single_sends import Prepared, PreparedBatch, SingleSends
from kourou.engine.sends.topic_rewrite import Redirects
from kourou.errors import KourouError
from kourou.model.limits import BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
from kourou.protocol.messages.sending import SendMessage
from kourou.runtime.core import Received

Alone = Callable[[int, Received], Sequence[Effect]]
_Waiting = tuple[Received, Prepared | PreparedBatch]


class JointSingles:
    """Combines several single sends into one append."""

    def __init__(self, single_sends: SingleSends, appends: Appends, redirects: Redirects) -> None:
        self._single_sends = single_sends
        self._appends = appends
        self._redirects = redirects

    def store(self, now_ms: int, sends: Sequence[Received], alone: Alone) -> list[Effect]:
        """Store these and reply, in their order; `alone` handles one separately."""
        effects: list[Effect] = []
        group: list[_Waiting] = []
        room, room_bytes = BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
        for received in sends:
            one = self._prepared(now_ms, received)
            if one is None:
                effects += self._store(now_ms, group, alone)
                effects += alone(now_ms, received)
                group, room, room_bytes = [], BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
                continue
            if isinstance(one, Prepared):
                count, size_bytes = 1, len(one.draft)
            else:
                count, size_bytes = len(one.sizes), len(one.drafts)
            if room_bytes < size_bytes or room < count:
                effects += self._store(now_ms, group, alone)
                group, room, room_bytes = [], BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
            room -= count
            room_bytes -= size_bytes
            group.append((received, one))
        return effects + self._store(now_ms, group, alone)

    def _prepared(self, now_ms: int, received: Received) -> Prepared | PreparedBatch | None:
        """Return what is stored; None if it is handled separately."""
        request = received.request
        assert isinstance(request, SendMessage)
        if received.to.traced or 0 < received.deadline_ms <= now_ms:
            return None
        try:
            if request.batch:
                return self._single_sends.prepare_batch(received, request)
            one = self._single_sends.prepare(received, request)
            if one.elsewhere:
                ready = self._redirects.are_ready((one.draft,))
                return self._single_sends.moved(one, received.wall_ms) if ready else None
        except KourouError:
            return None  # handled separately, it gets the error as a reply
        return one

    def _store(self, now_ms: int, group: Sequence[_Waiting], alone: Alone) -> list[Effect]:
        if not group:
            return []
        numbers: dict[Target, int] = {}
        sizes, target_of = array("q"), array("q")
        for _, one in group:
            if isinstance(one, Prepared):
                sizes.append(len(one.draft))
                target_of.append(numbers.setdefault(one.place, len(numbers)))
            else:
                sizes += one.sizes
                number = numbers.setdefault(one.target, len(numbers))
                target_of += array("q", (number,)) * len(one.sizes)
        records = bytearray().join(
            [one.draft if isinstance(one, Prepared) else one.drafts for _, one in group]
        )
        wall_ms = max(received.wall_ms for received, _ in group)
        try:
            written = self._appends.write(records, sizes, list(numbers), target_of, wall_ms)
        except KourouError:  # no space, or a failed store: each gets its own error
            return [effect for received, _ in group for effect in alone(now_ms, received)]
        effects = self._appends.take_done()
        offsets, positions = written.offsets.tolist(), written.positions.tolist()
        at = 0
        for received, one in group:
            if isinstance(one, Prepared):
                effects += self._single_sends.stored(
                    now_ms, received, one, offsets[at], positions[at]
                )
                at += 1
            else:
                end = at + len(one.sizes)
                effects += self._single_sends.stored_batch(
                    now_ms, received, one, offsets[at], positions[at:end]
                )
                at = end
        return effects
