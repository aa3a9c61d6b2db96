"""Assigns a log position and a queue offset to each record.

State: projection. The next offset of a queue is the queue's length. It is read from the store when
the queue is first used, and then cached. Appended records that the queues and the key index do not
have yet are kept too, so that deduplication finds a repeat that comes in the same batch or while
the index lags.

Invariants:
- positions and offsets are assigned once and never again
- store times never decrease within the log
- no record is placed beyond the space that is allocated on disk
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import NamedTuple, TypeAlias

from kourou.engine.effects import Append, Effect, SegmentFiller
from kourou.engine.ports import ANYWHERE, StoreView
from kourou.errors import (
    DiskFull,
    KourouError,
    MessageIllegal,
    NotLeader,
    StoreFaulted,
    Throttled,
    Unavailable,
)
from kourou.model.limits import SEGMENT_TAIL_BYTES, UNPROJECTED_BYTES_MAX
from kourou.protocol import kernel
from kourou.protocol.kernel_python import FIELDS, NARROW, NO_SPACE, TOO_LONG
from kourou.protocol.record.columns import RecordColumns
from kourou.protocol.record.layout import Host, encode_host
from kourou.protocol.record.message_record import record_size
from kourou.runtime import Buffer

Target = tuple[str, int]

Numbers: TypeAlias = "array[int]"
"""64-bit integers, as the record kernel takes them."""

_QUEUE_OFFSET, _POSITION = FIELDS.index("queue_offset"), FIELDS.index("position")


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of the log at start. Disk space is guaranteed below `allocated_end`."""

    end: int
    allocated_end: int
    segment_size: int
    store_ms: int


class AppendResult(NamedTuple):
    """The result of a write. `end` is the end of the log after the records.

    `target_offsets` has the first offset for each queue. `runs` has (index of a record, its
    position) for the first record in each segment. `table` has the columns of the records as
    written (kourou.protocol.kernel_python).
    """

    end: int
    target_offsets: list[int]
    runs: list[tuple[int, int]]
    table: bytearray

    @property
    def offsets(self) -> memoryview:
        """The queue offset of each record."""
        return self._column(_QUEUE_OFFSET)

    @property
    def positions(self) -> memoryview:
        """The position of each record."""
        return self._column(_POSITION)

    def _column(self, field: int) -> memoryview:
        numbers = memoryview(self.table).cast("q")
        count = len(numbers) // len(FIELDS)
        return numbers[field * count : (field + 1) * count]


class _Unprojected(NamedTuple):
    """One append that is not in all projections yet; queue and offset are its last record's."""

    number: int
    last_target: Target
    last_offset: int
    pieces: list[tuple[int, Buffer]]
    size_bytes: int

    @property
    def end(self) -> int:
        """The position after its last record."""
        position, data = self.pieces[-1]
        return position + len(data)


class Appends:
    """Assigns numbers and store times to records. One instance owns the end of one log."""

    __slots__ = (
        "_allocated_end",
        "_appends",
        "_done",
        "_end",
        "_full",
        "_next_offsets",
        "_pause",
        "_refusal",
        "_retired",
        "_segment_size",
        "_store_host",
        "_store_ms",
        "_targets",
        "_unindexed",
        "_unprojected",
        "_unprojected_bytes",
        "_view",
    )

    def __init__(
        self,
        view: StoreView,
        log: LogEnd,
        store_host: Host,
        retired: Mapping[str, Mapping[int, int]],
    ) -> None:
        self._view = view
        self._retired = retired
        self._end = log.end
        self._allocated_end = log.allocated_end
        self._segment_size = log.segment_size
        self._store_ms = log.store_ms
        self._store_host = encode_host(store_host)
        self._next_offsets: dict[Target, int] = {}
        self._targets: list[Target] = []
        self._full = False
        self._refusal: Unavailable | None = None
        self._pause: Unavailable | None = None
        self._done: list[Effect] = []
        self._unindexed: deque[_Unprojected] = deque()
        self._unprojected: deque[_Unprojected] = deque()
        self._unprojected_bytes = 0
        self._appends = 0

    def take_done(self) -> list[Effect]:
        """Take the appends that must be written now, in order; called after every input.

        Numbers are assigned once. So appends are kept apart from the effects that a decision
        returns: a decision that fails halfway must not take back numbers that are assigned already.
        """
        done = self._done
        if done:
            self._done = []
        return done

    def take_targets(self) -> Sequence[Target]:
        """Take the queues that got records since the last call, some more than once."""
        targets = self._targets
        if targets:
            self._targets = []
        return targets

    def also(self, effects: Sequence[Effect]) -> None:
        """Add effects that must follow the appends so far, even if the decision fails."""
        self._done += effects

    @property
    def end(self) -> int:
        """The position of the next record, unless a filler comes first."""
        return self._end

    @property
    def store_ms(self) -> int:
        """The store time of the newest record."""
        return self._store_ms

    def space(self, allocated_end: int, *, full: bool) -> None:
        """Set the end of the allocated space, and whether the disk is full."""
        self._allocated_end = max(self._allocated_end, allocated_end)
        self._full = full

    def fail(self, reason: str) -> None:
        """Refuse all writes, because the store failed."""
        self._refusal = StoreFaulted(f"this broker no longer stores messages: {reason}")

    def refuse(self, reason: str, hint: str = "") -> None:
        """Refuse all writes, because another broker writes this log."""
        self._refusal = NotLeader(reason, hint=hint)

    def pause(self, reason: str) -> None:
        """Refuse writes until `resume`, unless they are refused already."""
        if self._refusal is None:
            self._refusal = self._pause = NotLeader(reason, hint="retry")

    def resume(self) -> None:
        """End the pause. Any other refusal stays in force."""
        if self._refusal is self._pause:
            self._refusal = None
        self._pause = None

    def copied_to(self, end: int) -> None:
        """Continue at `end`: records that another broker numbered were written up to there."""
        self._end = end
        self._next_offsets.clear()

    def next_offset(self, target: Target) -> int:
        """Return the offset that the next record of this queue gets."""
        known = self._next_offsets.get(target)
        if known is None:
            written = self._view.queue_range(*target)
            # A topic that was deleted and created again continues at its last offsets.
            ended = self._retired.get(target[0], {}).get(target[1], 0)
            known = self._next_offsets[target] = max(
                ended, written[1] if written is not None else 0
            )
        return known

    def write_one(self, draft: Buffer, target: Target, wall_ms: int) -> tuple[int, int]:
        """Number and stamp one draft; return (queue offset, position). Raises as `write`."""
        sizes = array("q", (len(draft),))
        written = self.write(bytearray(draft), sizes, [target], None, wall_ms)
        return written.target_offsets[0], written.runs[0][1]

    def write_drafts(
        self, drafts: Sequence[Buffer], targets: Sequence[Target], wall_ms: int
    ) -> AppendResult:
        """Number and stamp separate drafts; `targets[i]` is the queue of draft i.

        Raises as `write`.
        """
        numbers: dict[Target, int] = {}
        target_of = array("q", [numbers.setdefault(target, len(numbers)) for target in targets])
        sizes = array("q", map(len, drafts))
        return self.write(bytearray().join(drafts), sizes, list(numbers), target_of, wall_ms)

    def write(
        self,
        records: bytearray,
        sizes: Numbers,
        targets: Sequence[Target],
        target_of: Numbers | None,
        wall_ms: int,
    ) -> AppendResult:
        """Number and stamp checked drafts, which are back to back and become the records in place.

        `target_of[i]` is the index in `targets` for draft i; None means that all drafts go to
        `targets[0]`. `targets` has no repeats. Records of one queue get consecutive offsets in
        their order.

        Raises DiskFull, StoreFaulted, Throttled, NotLeader or MessageIllegal; then nothing has
        changed.
        """
        self._require_store()
        firsts = [self.next_offset(target) for target in targets]
        ends = array("q", firsts)
        store_ms = max(self._store_ms, wall_ms)
        table, runs, blanks, end, problem, index = kernel.append(
            records,
            sizes,
            target_of,
            ends,
            self._end,
            self._allocated_end,
            self._segment_size,
            store_ms,
            self._store_host,
        )
        if problem:
            raise self._refused(problem, index, sizes)
        self._store_ms = store_ms
        self._end = end
        self._targets += targets
        for target, offset in zip(targets, ends, strict=True):
            self._next_offsets[target] = offset
        pieces: list[tuple[int, Buffer]] = [(runs[0][2], records)]
        stamped: RecordColumns | None = None
        if len(runs) == 1:
            stamped = RecordColumns(records, table)
        else:
            pieces = _pieces(records, table, runs)
        self._done.append(Append(pieces, [SegmentFiller(*one) for one in blanks], end, stamped))
        last = targets[0 if target_of is None else target_of[-1]]
        self._keep(last, self._next_offsets[last] - 1, pieces, len(records))
        return AppendResult(end, firsts, [(first, position) for first, _, position in runs], table)

    def _keep(
        self,
        last_target: Target,
        last_offset: int,
        pieces: list[tuple[int, Buffer]],
        size_bytes: int,
    ) -> None:
        """Keep the records in memory until the queues and the key index have them."""
        self._appends += 1
        self._unprojected.append(
            _Unprojected(self._appends, last_target, last_offset, pieces, size_bytes)
        )
        self._unprojected_bytes += size_bytes
        while self._unprojected_bytes > UNPROJECTED_BYTES_MAX and (
            self._unindexed or len(self._unprojected) > 1
        ):
            self._forget_oldest()

    # -- records that are not in the queues yet -----------------------------------------------

    def projected(self, queues: Sequence[tuple[str, int, int]], indexed: int = ANYWHERE) -> None:
        """Drop the records that queues and index have; `queues`: (topic, queue ID, maximum offset).

        Queues follow the log, so all records that were appended before a projected record are
        projected too. The key index has every record that ends at or below position `indexed`.
        """
        advanced = {(topic, queue_id): high for topic, queue_id, high in queues}
        done = 0
        for count, one in enumerate(self._unprojected, 1):
            high = advanced.get(one.last_target)
            if high is not None:
                if one.last_offset >= high:
                    break
                done = count
        for _ in range(done):
            self._unindexed.append(self._unprojected.popleft())
        while self._unindexed and self._unindexed[0].end <= indexed:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = (self._unindexed or self._unprojected).popleft()
        self._unprojected_bytes -= oldest.size_bytes

    @property
    def oldest_unprojected(self) -> int:
        """The number of the oldest append that `unprojected` can return, or of the next append."""
        kept = self._unindexed or self._unprojected
        return kept[0].number if kept else self._appends + 1

    def unprojected(self, after: int) -> Iterator[tuple[int, memoryview]]:
        """Yield records that queues or index may not have yet, each with the number of its append.

        Only appends numbered above `after` are included.
        """
        newest_first = chain(reversed(self._unprojected), reversed(self._unindexed))
        newer = list(takewhile(lambda one: one.number > after, newest_first))
        for one in reversed(newer):
            for _, data in one.pieces:
                view, at = memoryview(data), 0
                while at < len(view):
                    size = record_size(view, at)
                    yield one.number, view[at : at + size]
                    at += size

    def unprojected_at(self, position: int) -> memoryview | None:
        """Return the record of these that begins at `position`, or None."""
        for one in chain(reversed(self._unprojected), reversed(self._unindexed)):
            for begins, data in one.pieces:
                if begins <= position < begins + len(data):
                    view, at = memoryview(data), 0
                    while begins + at < position:
                        at += record_size(view, at)
                    if begins + at > position:
                        return None
                    return view[at : at + record_size(view, at)]
        return None

    def ends(self, topic: str) -> dict[int, int]:
        """Return the next offset of every queue of a topic that was ever written."""
        used = {queue_id for name, queue_id in self._next_offsets if name == topic}
        ends = {
            queue_id: self.next_offset((topic, queue_id))
            for queue_id in sorted(used.union(self._view.queue_ids(topic)))
        }
        return {queue_id: end for queue_id, end in ends.items() if end > 0}

    # -- refusals -----------------------------------------------------------------------------

    def _require_store(self) -> None:
        """Raise the reason if writes are refused."""
        if self._refusal is not None:
            # A new error each time, because raising an error adds to its traceback.
            raise type(self._refusal)(self._refusal.message, hint=self._refusal.hint)

    def _refused(self, problem: int, index: int, sizes: Numbers) -> KourouError:
        """Return the error for drafts that the kernel did not append."""
        if problem == TOO_LONG:
            room = self._segment_size - SEGMENT_TAIL_BYTES
            return MessageIllegal(
                f"record {index} takes {sizes[index]} bytes; a log segment holds records of at "
                f"most {room}",
                hint="send smaller messages or raise mappedFileSizeCommitLog on an empty store",
            )
        if problem == NARROW:
            return MessageIllegal(f"draft {index} has no room for the broker's IPv6 address")
        assert problem == NO_SPACE, f"draft {index} of {len(sizes)} was not checked"
        if self._full:
            return DiskFull(
                "the disk is full; nothing was stored",
                hint="free space or add a broker; reads continue",
            )
        return Throttled(
            "the next log segment is still being allocated; nothing was stored",
            hint="send again",
            retry_after_ms=50,
        )


def _pieces(
    records: bytearray, table: bytearray, runs: Sequence[tuple[int, int, int]]
) -> list[tuple[int, Buffer]]:
    """Split the stamped bytes at the ends of segments."""
    starts = memoryview(table).cast("q")
    view = memoryview(records)
    cuts = [*(starts[first] for first, _, _ in runs), len(records)]
    return [
        (position, view[start:end])
        for (_, _, position), start, end in zip(runs, cuts, cuts[1:], strict=False)
    ]
