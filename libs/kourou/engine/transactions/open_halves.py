"""The open half messages.

State: projection of the half and the op queue, in memory, rebuilt at start (`open_halves`).

The progress in both queues is committed for the group CID_RMQ_SYS_TRANS, as in RocketMQ, so that
either broker can continue where the other one stopped:

    half queue   every half message below its offset is resolved, put back or given up
    op queue     every op record below its offset ends a half message below that one

Invariants:
- the table is in the order of queue offsets
- a half message that was put back is open under its newest offset only
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from kourou.engine.groups.progress import Commits
from kourou.engine.ports import ANYWHERE, StoreView
from kourou.engine.transactions.batches import BatchHalves
from kourou.engine.transactions.half_messages import (
    HALF_TARGET,
    OP_TARGET,
    HalfRecord,
    Identity,
    read_half,
)
from kourou.errors import BadRequest, Corrupt
from kourou.events.control_events import UnreadSpan
from kourou.model.limits import HALF_DRAFTS_BYTES_MAX
from kourou.model.names import TRANSACTION_GROUP
from kourou.model.transaction import BatchMark, ended_by
from kourou.protocol.record.layout import parts_of


class OpenHalf:
    """An open half message: its newest copy's offset and position, and when it was first stored.

    `since_ms` is monotonic, below 0 for one that was stored before this process began. `proven` is
    False if it was open when the broker started and the broker has not checked yet whether its
    committed message was stored just before it stopped. `draft` is the appended record of one of
    the newest half messages; the others are read from the log.
    """

    __slots__ = ("checks", "draft", "immunity_ms", "offset", "position", "proven", "since_ms")

    def __init__(
        self,
        offset: int,
        position: int,
        since_ms: int,
        checks: int = 0,
        immunity_ms: int | None = None,
        *,
        proven: bool = True,
    ) -> None:
        self.offset = offset
        self.position = position
        self.since_ms = since_ms
        self.checks = checks
        self.immunity_ms = immunity_ms
        self.proven = proven
        self.draft: bytes | None = None


class OpenHalves:
    """The table, and the progress in both queues. `half_end` is the half queue's next offset.

    `batches` has those of batch transactions, which are not in the table: one decision ends them
    all.
    """

    __slots__ = (
        *("_copies", "_drafts", "_drafts_bytes", "_op_base", "_ops", "_table"),
        *("batches", "half_end"),
    )

    def __init__(self, half_end: int = 0, op_base: int = 0) -> None:
        # Not a dict: to find its first entry, Python passes over all that were deleted before.
        self._table: OrderedDict[int, OpenHalf] = OrderedDict()
        self._copies: dict[Identity, OpenHalf] = {}
        self._ops: deque[int] = deque()
        self._op_base = op_base
        self._drafts: deque[tuple[OpenHalf, int]] = deque()
        self._drafts_bytes = 0
        self.batches = BatchHalves()
        self.half_end = half_end

    def __len__(self) -> int:
        return len(self._table) + len(self.batches)

    def __iter__(self) -> Iterator[OpenHalf]:
        """Those of no batch, the lowest offset first; make no changes during the iteration."""
        return iter(self._table.values())

    def first(self, count: int) -> list[OpenHalf]:
        """Return the `count` lowest that are of no batch."""
        found: list[OpenHalf] = []
        for half in self._table.values():
            if len(found) == count:
                break
            found.append(half)
        return found

    def spans_before(self, position: int, low: int) -> list[UnreadSpan]:
        """Return runs of open half messages below a log position, from queue offset `low` on."""
        offsets = self.batches.below(position, low)
        for half in self._table.values():
            if half.position >= position:
                break
            if half.offset >= low:  # else it is deleted already
                offsets.append(half.offset)
        spans: list[UnreadSpan] = []
        for offset in sorted(offsets):
            if spans and spans[-1].end == offset:
                spans[-1] = _half_span(spans[-1].first, offset + 1)
            else:
                spans.append(_half_span(offset, offset + 1))
        return spans

    def at(self, offset: int) -> OpenHalf | None:
        """Return the open half message at this queue offset, or None."""
        return self._table.get(offset)

    def copy_of(self, half: HalfRecord) -> OpenHalf | None:
        """Return the open half message of which this one is an earlier copy, or None."""
        identity = half.identity
        return None if identity is None else self._copies.get(identity)

    def open(self, half: OpenHalf) -> None:
        """Add a half message that was stored after all others."""
        assert half.offset >= self.half_end, (half.offset, self.half_end)
        self._table[half.offset] = half
        self.half_end = half.offset + 1

    def keep(self, half: OpenHalf, draft: bytes) -> None:
        """Keep the draft in memory until newer ones need the space or it is closed."""
        half.draft = draft
        self._drafts.append((half, len(draft)))
        self._drafts_bytes += len(draft)
        while self._drafts_bytes > HALF_DRAFTS_BYTES_MAX:
            oldest, size = self._drafts.popleft()
            oldest.draft = None
            self._drafts_bytes -= size

    def open_batch(
        self, mark: BatchMark, offset: int, position: int, since_ms: int, *, proven: bool = True
    ) -> None:
        """Add a half message of a batch that was stored after all others."""
        self.batches.open(mark, offset, position, since_ms, proven=proven)
        self.half_end = offset + 1

    def open_batches(
        self,
        mark: BatchMark,
        offsets: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        since_ms: int,
    ) -> None:
        """Add half messages of one part, in their order, stored after all others of it."""
        self.batches.open_many(mark, offsets, positions, since_ms)
        self.half_end = max(self.half_end, int(offsets[-1]) + 1)

    def open_copy(self, half: OpenHalf, identity: Identity | None) -> None:
        """Add a copy of a half message; from now on it is open under this offset."""
        if identity is not None:
            former = self._copies.get(identity)
            if former is not None:
                self._table.pop(former.offset, None)
            self._copies[identity] = half
        self.open(half)

    def move(self, half: OpenHalf, offset: int, position: int, identity: Identity | None) -> None:
        """Change the offset and position of an open half message that was put back."""
        del self._table[half.offset]
        half.offset, half.position, half.draft = offset, position, None
        if identity is not None:
            self._copies[identity] = half
        self.open(half)

    def close(self, half: OpenHalf, identity: Identity | None) -> None:
        """Remove a half message that is resolved or given up."""
        del self._table[half.offset]
        half.draft = None
        if identity is not None and self._copies.get(identity) is half:
            del self._copies[identity]

    def passed(self, offset: int) -> None:
        """Advance the half queue beyond `offset`, where the half message is not open."""
        self.half_end = max(self.half_end, offset + 1)

    def noted(self, op_offset: int, half_offset: int) -> None:
        """Note an op record that was stored at `op_offset`."""
        assert op_offset >= self._op_base + len(self._ops), (op_offset, self._op_base)
        while self._op_base + len(self._ops) < op_offset:
            self._ops.append(-1)  # damaged records, which end nothing
        self._ops.append(half_offset)

    def noted_many(self, op_offset: int, half_offsets: Sequence[int]) -> None:
        """Note op records that were stored from `op_offset` on, one for each of these."""
        self.noted(op_offset, half_offsets[0])
        self._ops.extend(half_offsets[1:])

    def done(self) -> tuple[int, int]:
        """Return the offsets to commit for the half queue and the op queue."""
        half = self.batches.lowest(next(iter(self._table), self.half_end))
        while self._ops and self._ops[0] < half:
            self._ops.popleft()
            self._op_base += 1
        return half, self._op_base


def _half_span(first: int, end: int) -> UnreadSpan:
    return UnreadSpan(TRANSACTION_GROUP, *HALF_TARGET, first, end)


READ_MESSAGES = 1_024
READ_BYTES = 4 * 1024 * 1024


def open_halves(view: StoreView, commits: Commits, now_ms: int, wall_ms: int) -> OpenHalves:
    """Return the open half messages of a recovered store; O(messages after the progress).

    From the committed offset of the half queue on, every half message that no op record ends is
    open. A copy that was put back replaces the half message that it was made of. Progress is
    recorded only every few seconds, so both may come after the committed offset.
    """
    half_low, half_end = _range(view, commits, HALF_TARGET)
    op_low, _ = _range(view, commits, OP_TARGET)
    halves = OpenHalves(half_low, op_low)
    ended: set[int] = set()
    for raw in _records(view, OP_TARGET, op_low):
        parts = parts_of(raw, 0, len(raw))
        offsets = ended_by(bytes(raw[parts.body_at : parts.body_end]))
        ended.update(offsets)
        halves.noted(parts.queue_offset, max(offsets, default=-1))
    gone: set[Identity] = set()
    seen: dict[Identity, OpenHalf] = {}
    for raw in _records(view, HALF_TARGET, half_low):
        try:
            half = read_half(raw)
        except Corrupt:  # intact, but not a half message: it can never be resolved
            continue
        identity, again = half.identity, half.was_put_back
        offset, former = half.queue_offset, None
        if identity is not None and again:
            former = seen.pop(identity, None)
        if former is not None:
            halves.close(former, identity)
        if offset in ended or half.first_offset in ended or (again and identity in gone):
            halves.passed(offset)
            if identity is not None:
                gone.add(identity)
            continue
        mark = _mark(half)
        if mark is not None:
            age_ms = max(wall_ms - half.store_ms, 0)
            halves.open_batch(mark, offset, half.position, now_ms - age_ms, proven=False)
            continue
        one = _opened(half, now_ms, wall_ms)
        if again:
            halves.open_copy(one, identity)
        else:
            halves.open(one)
        if identity is not None:
            seen[identity] = one
    halves.passed(half_end - 1)
    return halves


def _mark(half: HalfRecord) -> BatchMark | None:
    try:
        return half.mark
    except BadRequest:  # another broker accepted it; it gets check-backs like any other
        return None


def _opened(half: HalfRecord, now_ms: int, wall_ms: int) -> OpenHalf:
    since_ms = half.store_ms
    if half.was_put_back:  # its first store time is unknown; RocketMQ uses its birth, too
        since_ms = min(since_ms, half.born_ms)
    return OpenHalf(
        half.queue_offset,
        half.position,
        now_ms - max(wall_ms - since_ms, 0),
        half.checks,
        half.immunity_ms,
        proven=False,
    )


def _range(view: StoreView, commits: Commits, target: tuple[str, int]) -> tuple[int, int]:
    low, high = view.queue_range(*target) or (0, 0)
    committed = commits.offset(TRANSACTION_GROUP, *target)
    # An offset outside the queue belongs to a deleted queue, or to a truncated log.
    return (low if committed is None else min(max(committed, low), high)), high


def _records(view: StoreView, target: tuple[str, int], offset: int) -> Iterator[memoryview]:
    _, high = view.queue_range(*target) or (0, 0)
    while offset < high:
        read = view.read_queue(
            *target,
            offset,
            max_messages=READ_MESSAGES,
            max_bytes=READ_BYTES,
            codes=None,
            below=ANYWHERE,
        )
        yield from read.records
        if read.next_offset <= offset:
            return
        offset = read.next_offset
