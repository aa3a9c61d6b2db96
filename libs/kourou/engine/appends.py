"""Where does a record go, and which offset does it get?

Lives here: numbering. Queue offsets, positions and store times are given here and nowhere else, and
the records are stamped with them, so what is appended is final: disk, replica, filter and consumer
read these very bytes.
May not live here: who may send (engine.sending), when a sender is answered (engine.confirmations).

State: projection. The next offset of a queue is the queue's length; it is read from the store when
a queue is first used and then kept. What was appended and is not in the queues and in the key
index yet is kept too, so that a repeat is recognised which comes in the same breath, or while the
index is behind.

Invariants:  positions and offsets are given once and never again
             store times never decrease within the log
             nothing is placed beyond what is allocated on disk
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kourou.engine.effects import Append, Effect
from kourou.engine.inputs import Buffer
from kourou.engine.placement import Blank, Placement, place
from kourou.engine.ports import ANYWHERE, StoreView
from kourou.errors import DiskFull, NotLeader, StoreFaulted, Throttled, Unavailable
from kourou.model.limits import SEGMENT_TAIL_BYTES, UNPROJECTED_BYTES_MAX
from kourou.protocol.record import Host, encode_host, record_size, stamp
from kourou.protocol.record_batch import RecordColumns, columns, stamp_batch

Lane = tuple[str, int]

SCALAR_RECORDS = 6
"""More are numbered and projected as columns; fewer are quicker one by one."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the log stands when the broker starts. `allocated_end`: disk space is sure below it."""

    end: int
    allocated_end: int
    segment_size: int
    store_ms: int


@dataclass(slots=True)
class Written:
    """What a sender is told of its batch; `end` is the log's end behind it.

    `runs` are (number of the record, its position) wherever a segment begins; `offsets` and
    `positions` are those of each record.
    """

    end: int
    lane_offsets: list[int]
    runs: list[tuple[int, int]]
    positions: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


class _Unprojected(NamedTuple):
    """One append, and where its last record stands in its queue."""

    number: int
    last_lane: Lane
    last_offset: int
    pieces: list[tuple[int, Buffer]]
    size_bytes: int

    @property
    def end(self) -> int:
        """The position behind its last record."""
        position, data = self.pieces[-1]
        return position + len(data)


class Appends:
    """Numbers and stamps records; one instance owns the end of one log."""

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
        self._next_offsets: dict[Lane, int] = {}
        self._full = False
        self._refusal: Unavailable | None = None
        self._pause: Unavailable | None = None
        self._done: list[Effect] = []
        self._unindexed: deque[_Unprojected] = deque()
        self._unprojected: deque[_Unprojected] = deque()
        self._unprojected_bytes = 0
        self._appends = 0

    def take_done(self) -> list[Effect]:
        """What is numbered and must be written now, in order; the core asks after every input.

        Numbers are given once. So this is kept apart from what a decision returns: a decision that
        fails half way must not take back what was numbered before.
        """
        done = self._done
        if done:
            self._done = []
        return done

    def also(self, effects: Sequence[Effect]) -> None:
        """What must follow the appends so far, whatever becomes of the decision."""
        self._done += effects

    @property
    def end(self) -> int:
        """The position of the next record, fillers apart."""
        return self._end

    @property
    def store_ms(self) -> int:
        """The store time of the newest record."""
        return self._store_ms

    def space(self, allocated_end: int, *, full: bool) -> None:
        """The store has more room, or cannot get any."""
        self._allocated_end = max(self._allocated_end, allocated_end)
        self._full = full

    def fail(self, reason: str) -> None:
        """The store failed; nothing is written any more."""
        self._refusal = StoreFaulted(f"this broker stores nothing more: {reason}")

    def refuse(self, reason: str, hint: str = "") -> None:
        """Another broker writes this log; here nothing is numbered any more."""
        self._refusal = NotLeader(reason, hint=hint)

    def pause(self, reason: str) -> None:
        """Nothing is numbered until `go_on`, if anything is now."""
        if self._refusal is None:
            self._refusal = self._pause = NotLeader(reason, hint="ask again")

    def go_on(self) -> None:
        """The pause is over; what else refuses does so still."""
        if self._refusal is self._pause:
            self._refusal = None
        self._pause = None

    def copied_to(self, end: int) -> None:
        """What another broker numbered was written up to `end`."""
        self._end = end
        self._next_offsets.clear()

    def next_offset(self, lane: Lane) -> int:
        """The offset that the next record of this queue gets."""
        known = self._next_offsets.get(lane)
        if known is None:
            written = self._view.queue_range(*lane)
            # A topic that was deleted and is back goes on counting where it ended.
            ended = self._retired.get(lane[0], {}).get(lane[1], 0)
            known = self._next_offsets[lane] = max(ended, written[1] if written is not None else 0)
        return known

    def write_one(self, draft: Buffer, lane: Lane, wall_ms: int) -> tuple[int, int]:
        """Number and stamp one draft; return (queue offset, position).

        Raises DiskFull, StoreFaulted, Throttled or MessageIllegal; then nothing has changed.
        """
        placement = self._reserve([len(draft)])
        position = int(placement.positions[0])
        offset = self.next_offset(lane)
        record = bytearray(draft)
        store_ms = max(self._store_ms, wall_ms)
        stamp(
            record,
            0,
            queue_offset=offset,
            position=position,
            store_timestamp=store_ms,
            store_host=self._store_host,
        )
        self._store_ms = store_ms
        self._next_offsets[lane] = offset + 1
        self._place(
            [(position, record)], placement.blanks, placement.end, lane, offset, len(record)
        )
        return offset, position

    def write_several(
        self, drafts: Sequence[tuple[Lane, Buffer]], wall_ms: int
    ) -> list[tuple[int, int]]:
        """Number and stamp checked drafts of any lanes, in one piece if the segment has room.

        Returns (queue offset, position) of each. Raises as `write_one`; then nothing has changed.
        """
        begin = self._end
        end = begin + sum(len(draft) for _, draft in drafts)
        room = self._segment_size - begin % self._segment_size - SEGMENT_TAIL_BYTES
        if len(drafts) > SCALAR_RECORDS or end - begin > room:
            return self._write_columns(drafts, wall_ms)
        self._require_store()
        self._require_room(end)
        store_ms = max(self._store_ms, wall_ms)
        records = bytearray().join([draft for _, draft in drafts])
        ends: dict[Lane, int] = {}
        places: list[tuple[int, int]] = []
        at = 0
        for lane, draft in drafts:
            offset = ends[lane] if lane in ends else self.next_offset(lane)
            stamp(
                records,
                at,
                queue_offset=offset,
                position=begin + at,
                store_timestamp=store_ms,
                store_host=self._store_host,
            )
            places.append((offset, begin + at))
            ends[lane] = offset + 1
            at += len(draft)
        self._store_ms = store_ms
        self._next_offsets.update(ends)
        last = drafts[-1][0]
        self._place([(begin, records)], [], end, last, offset, at)
        return places

    def _write_columns(
        self, drafts: Sequence[tuple[Lane, Buffer]], wall_ms: int
    ) -> list[tuple[int, int]]:
        sizes = np.fromiter((len(draft) for _, draft in drafts), np.int64, len(drafts))
        numbers: dict[Lane, int] = {}
        lane_of = [numbers.setdefault(lane, len(numbers)) for lane, _ in drafts]
        blob = bytearray().join([draft for _, draft in drafts])
        written = self.write(
            blob,
            columns(blob, sizes.cumsum() - sizes, sizes),
            list(numbers),
            np.asarray(lane_of, np.uint16) if len(numbers) > 1 else None,
            wall_ms,
        )
        return list(zip(written.offsets.tolist(), written.positions.tolist(), strict=True))

    def write(
        self,
        blob: Buffer,
        drafts: RecordColumns,
        lanes: Sequence[Lane],
        lane_of: npt.NDArray[np.uint16] | None,
        wall_ms: int,
    ) -> Written:
        """Number and stamp a checked batch whose drafts lie back to back in `blob`.

        `lane_of[i]` is the lane of draft i; None means that all are of lane 0. Records of one lane
        get consecutive offsets in batch order. A bytearray is not copied but becomes the records.
        Raises as `write_one`; then nothing in it has changed.
        """
        count = len(drafts.sizes)
        placement = self._reserve(drafts.sizes)
        first_offsets = [self.next_offset(lane) for lane in lanes]
        if lane_of is None:
            offsets = np.arange(first_offsets[0], first_offsets[0] + count, dtype=np.int64)
            counts = [count]
        else:
            offsets, counts = _number(lane_of, first_offsets)
        store_ms = max(self._store_ms, wall_ms)
        records = blob if type(blob) is bytearray else bytearray(blob)
        stamp_batch(records, drafts, offsets, placement.positions, store_ms, self._store_host)
        self._store_ms = store_ms
        for lane, first, number in zip(lanes, first_offsets, counts, strict=True):
            self._next_offsets[lane] = first + number
        last = lanes[0] if lane_of is None else lanes[int(lane_of[-1])]
        pieces = _pieces(records, drafts, placement)
        stamped = None
        if len(pieces) == 1:
            stamped = drafts.stamped(records, offsets, placement.positions, store_ms)
        self._place(
            pieces, placement.blanks, placement.end, last, int(offsets[-1]), len(records), stamped
        )
        return Written(
            placement.end,
            first_offsets,
            [(first, position) for first, _, position in placement.runs],
            placement.positions,
            offsets,
        )

    def _place(
        self,
        pieces: list[tuple[int, Buffer]],
        blanks: list[Blank],
        end: int,
        last_lane: Lane,
        last_offset: int,
        size_bytes: int,
        records: RecordColumns | None = None,
    ) -> None:
        self._end = end
        self._done.append(Append(pieces, blanks, end, records))
        self._appends += 1
        self._unprojected.append(
            _Unprojected(self._appends, last_lane, last_offset, pieces, size_bytes)
        )
        self._unprojected_bytes += size_bytes
        while self._unprojected_bytes > UNPROJECTED_BYTES_MAX and (
            self._unindexed or len(self._unprojected) > 1
        ):
            self._forget_oldest()

    # -- what is not in the queues yet --------------------------------------------------------

    def projected(self, queues: Sequence[tuple[str, int, int]], indexed: int = ANYWHERE) -> None:
        """The queues have grown to these maxima: (topic, queue id, maximum offset).

        Queues follow the log, so whatever was appended before a projected record is projected too.
        The key index has every record that ends at or below position `indexed`.
        """
        grown = {(topic, queue_id): high for topic, queue_id, high in queues}
        done = 0
        for count, one in enumerate(self._unprojected, 1):
            high = grown.get(one.last_lane)
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
        """The number of the oldest append that `unprojected` gives, or that of the next one."""
        kept = self._unindexed or self._unprojected
        return kept[0].number if kept else self._appends + 1

    def unprojected(self, after: int) -> Iterator[tuple[int, memoryview]]:
        """Records that queues and index may not have yet, each with the number of its append.

        Only those of appends numbered above `after`.
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

    def ends(self, topic: str) -> dict[int, int]:
        """The next offset of every queue of a topic that was ever written, projected or not."""
        used = {queue_id for name, queue_id in self._next_offsets if name == topic}
        ends = {
            queue_id: self.next_offset((topic, queue_id))
            for queue_id in sorted(used.union(self._view.queue_ids(topic)))
        }
        return {queue_id: end for queue_id, end in ends.items() if end > 0}

    # -- room ---------------------------------------------------------------------------------

    def _reserve(self, sizes: Sequence[int] | npt.NDArray[np.int64]) -> Placement:
        self._require_store()
        placement = place(self._end, sizes, self._segment_size)
        self._require_room(placement.end)
        return placement

    def _require_store(self) -> None:
        """Raise if nothing may be written here."""
        if self._refusal is not None:
            # A new one each time: whoever raises an error adds to its traceback.
            raise type(self._refusal)(self._refusal.message, hint=self._refusal.hint)

    def _require_room(self, end: int) -> None:
        """Raise if the log may not grow to `end` now."""
        if end > self._allocated_end:
            if self._full:
                raise DiskFull(
                    "the disk is full; nothing was stored",
                    hint="free space or add a broker; reads continue",
                )
            raise Throttled(
                "the next log segment is still being allocated; nothing was stored",
                hint="send again",
                retry_after_ms=50,
            )


def _number(
    lane_of: npt.NDArray[np.uint16], first_offsets: list[int]
) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Offsets of each draft: its lane's first offset plus its rank within the lane."""
    counts = np.bincount(lane_of, minlength=len(first_offsets))
    order = np.argsort(lane_of, kind="stable")
    starts = np.cumsum(counts) - counts
    ranks = np.empty(len(lane_of), dtype=np.int64)
    ranks[order] = np.arange(len(lane_of), dtype=np.int64) - np.repeat(starts, counts)
    bases = np.asarray(first_offsets, dtype=np.int64)
    return bases[lane_of] + ranks, [int(number) for number in counts]


def _pieces(
    records: bytearray, drafts: RecordColumns, placement: Placement
) -> list[tuple[int, Buffer]]:
    """The stamped bytes, cut where a segment ends."""
    if len(placement.runs) == 1:
        return [(int(placement.positions[0]), records)]
    view = memoryview(records)
    pieces: list[tuple[int, Buffer]] = []
    for first, count, position in placement.runs:
        start = int(drafts.starts[first])
        last = first + count - 1
        end = int(drafts.starts[last]) + int(drafts.sizes[last])
        pieces.append((position, view[start:end]))
    return pieces
