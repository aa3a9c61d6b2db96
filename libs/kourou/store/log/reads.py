"""Reading: from an offset, a key or a time to whole, verified records.

State: none, except counters.

Invariants:  a record leaves this module only if it is whole and the requested one
               (kourou.store.log.verified)
             a damaged record costs only its own offset
             records are views of the mapped log; nothing is copied

Reading by time is a binary search over the store times of the queue's own messages. RocketMQ 4.9
first selects a file by its modification time, which a restored backup or a touched file makes
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from kourou.engine.ports import ANYWHERE, PropertyTest, QueueRead
from kourou.errors import Corrupt, Rejected
from kourou.model.limits import (
    FILTER_BYTES_MAX,
    FILTER_RECORDS_MAX,
    FILTER_UNITS_MAX,
    RECORD_FIXED_BYTES,
)
from kourou.protocol.kernel import values
from kourou.protocol.record.hashes import index_hash
from kourou.protocol.record.layout import MAGIC, parts_of
from kourou.protocol.record.message_record import CheckedRecord, record_size
from kourou.protocol.record.properties import labels
from kourou.store.index.key_index import KeyIndex
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine
from kourou.store.log.verified import ExpectedRecords, check_stored, verify
from kourou.store.queues.consume_queue import ConsumeQueue
from kourou.store.queues.queue_files import FILLER_SIZE, Units
from kourou.store.queues.queue_table import ConsumeQueues

EXT_CODES_BELOW = -(1 << 31)
"""Codes below are addresses in RocketMQ's consumequeue_ext: the unit has no tag hash.
"""

LIGHT_QUEUE_PREFIX = "%LMQ%"
"""RocketMQ's light queues refer to records that belong to other queues."""

_READ_AHEAD_BYTES = 64 * 1024
"""If the log is not mapped, up to this many unneeded bytes are read to avoid a second read."""

_NO_INDEXES = np.empty(0, np.int64)
_ALL = slice(None)

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Reads:
    """The read half of a store.

    `recent_bytes`: a record this close to the end of the log counts as cached.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        quarantine: Quarantine,
        recent_bytes: int,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._quarantine = quarantine
        self._recent_bytes = recent_bytes
        self.records_read = 0
        self.corrupt_met = 0

    # -- ranges -----------------------------------------------------------------------------------

    def log_range(self) -> tuple[int, int]:
        """The first readable position and the end of the readable log."""
        return self._log.start, self._log.readable_end

    def topics(self) -> list[str]:
        """The topics that have queues, sorted, including those no longer in any topic table."""
        return sorted(self._queues.topics())

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that were ever written, sorted."""
        return sorted(queue.queue_id for queue in self._queues.queues_of(topic))

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Minimum offset and the next offset to be written; None for a queue never written."""
        return self._queues.range_of(topic, queue_id)

    def is_recent(self, position: int) -> bool:
        """True if the record is likely still in memory (RocketMQ's 40 % rule)."""
        return self._log.end - position <= self._recent_bytes

    # -- one queue --------------------------------------------------------------------------------

    def read_queue(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        codes: frozenset[int] | None,
        below: int,
        wanted: PropertyTest | None = None,
    ) -> QueueRead:
        """Read records from `offset` that end at or below position `below`; see StoreView."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return QueueRead(next_offset=offset)
        read = QueueRead(
            next_offset=offset, min_offset=queue.min_offset, max_offset=queue.max_offset
        )
        count = max_messages if codes is None else max(max_messages, FILTER_UNITS_MAX)
        if wanted is not None:
            count = FILTER_RECORDS_MAX
        below = min(below, self._log.readable_end)
        chosen = _Choice(queue.units(offset, count), below, self._log.end)
        if not chosen.end:
            return read
        if wanted is not None:
            chosen.limit(codes, count, FILTER_BYTES_MAX)
        else:
            chosen.limit(codes, max_messages, max_bytes)
        good, views, run = self._fetch(queue, offset, chosen)
        taken = self._fill(read, offset, chosen, good, views)
        if wanted is not None:
            offsets = (chosen.indexes[taken] + offset).tolist()
            positions = chosen.positions[taken].tolist()
            filter_records(
                read, offsets, positions, wanted, max_messages=max_messages, max_bytes=max_bytes
            )
        if len(read.records) == len(views):
            read.run = run
        return read

    def _fetch(
        self, queue: ConsumeQueue, offset: int, chosen: _Choice
    ) -> tuple[Flags, list[memoryview], memoryview | None]:
        """Fetch the chosen records segment by segment: whether each is good, and their views.

        The third result is one view of all of them if they are adjacent in one segment, else None.
        """
        topic = None if queue.topic.startswith(LIGHT_QUEUE_PREFIX) else queue.topic.encode()
        positions, sizes = chosen.positions, chosen.sizes
        offsets = chosen.indexes + offset
        if not len(positions):
            return np.ones(0, np.bool_), [], None
        segment_size = self._log.segment_size
        if int(positions[0]) // segment_size == int(positions[-1]) // segment_size:
            wanted = ExpectedRecords(topic, queue.queue_id, offsets)
            return self._fetch_from(positions, sizes, wanted)
        good = np.zeros(len(positions), np.bool_)
        views: list[memoryview] = []
        cuts = np.flatnonzero(np.diff(positions // segment_size)) + 1
        first = 0
        for end in [*cuts.tolist(), len(positions)]:
            wanted = ExpectedRecords(topic, queue.queue_id, offsets[first:end])
            good[first:end], found, _ = self._fetch_from(
                positions[first:end], sizes[first:end], wanted
            )
            views += found
            first = end
        return good, views, None

    def _fetch_from(
        self, positions: Longs, sizes: Longs, wanted: ExpectedRecords
    ) -> tuple[Flags, list[memoryview], memoryview | None]:
        """Records of one segment; a record whose unit is wrong is not good."""
        base = int(positions.min())
        span = int((positions + sizes).max()) - base
        if not self._log.mapped and span > 2 * int(sizes.sum()) + _READ_AHEAD_BYTES:
            return *self._fetch_singly(positions, sizes, wanted), None
        try:
            view = self._log.view(base, span)
        except Rejected:
            return *self._fetch_singly(positions, sizes, wanted), None
        starts = positions - base
        good = verify(view, starts, sizes, base, wanted)
        ends = (starts + sizes).tolist()
        views = [view[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
        together = bool((starts[1:] == (starts + sizes)[:-1]).all())
        return good, views, view if together else None

    def _fetch_singly(
        self, positions: Longs, sizes: Longs, wanted: ExpectedRecords
    ) -> tuple[Flags, list[memoryview]]:
        """Fetch the records one by one, because some unit points outside the log."""
        good = np.zeros(len(positions), np.bool_)
        views = [memoryview(b"")] * len(positions)
        for index, (position, size) in enumerate(
            zip(positions.tolist(), sizes.tolist(), strict=True)
        ):
            try:
                view = self._log.view(position, size)
            except Rejected:
                continue
            one = slice(index, index + 1)
            part = ExpectedRecords(wanted.topic, wanted.queue_id, wanted.offsets[one])
            good[one] = verify(view, np.zeros(1, np.int64), sizes[one], position, part)
            views[index] = view
        return good, views

    def _fill(
        self, read: QueueRead, offset: int, chosen: _Choice, good: Flags, views: list[memoryview]
    ) -> Longs | slice:
        """Fill the result; stop before the second run of damaged offsets.

        Returns which of the chosen records were used.
        """
        end = chosen.end
        which: Longs | slice = _ALL
        read.records = views
        if len(views):
            read.last_position = int(chosen.positions[-1])
            read.size_bytes = int(chosen.sizes.sum())
        if len(chosen.fillers) or not good.all():
            damaged = np.sort(np.concatenate((chosen.fillers, chosen.indexes[~good])))
            gaps = np.flatnonzero(np.diff(damaged) > 1)
            if len(gaps):
                end = int(damaged[gaps[0] + 1])
            read.corrupt_offsets = (damaged[damaged < end] + offset).tolist()
            which = taken = np.flatnonzero(good & (chosen.indexes < end))
            read.records = [views[index] for index in taken.tolist()]
            read.last_position = int(chosen.positions[taken[-1]]) if len(taken) else -1
            read.size_bytes = int(chosen.sizes[taken].sum())
            self.corrupt_met += len(read.corrupt_offsets)
            self._met_damage(chosen.positions[~good].tolist())
        self.records_read += len(read.records)
        read.next_offset = offset + end
        return which

    def _met_damage(self, positions: Sequence[int]) -> None:
        """A queue refers to these positions, and the records there cannot be read."""

    # -- single records ---------------------------------------------------------------------------

    def record_at(self, position: int) -> memoryview:
        """The verified record that starts at `position`.

        Raises Rejected if none starts there, Corrupt if it fails its check.
        """
        view = self._view_at(position)
        found = self._check(view, position)
        return view[: found.size]

    def _view_at(self, position: int) -> memoryview:
        """The record that starts at `position`, and perhaps more; Rejected if that is outside.

        If the log is not mapped, a view is a copy: then it has no more bytes than the record
        claims.
        """
        if self._log.mapped:
            return self._log.view_segment(position)
        try:
            head = self._log.view(position, RECORD_FIXED_BYTES)
            if int.from_bytes(head[4:8], "big") != MAGIC:
                return head
            return self._log.view(position, max(record_size(head, 0), RECORD_FIXED_BYTES))
        except Rejected:  # it ends outside: too short, or its size is damaged
            return self._log.view_segment(position)

    def _check(self, view: memoryview, position: int) -> CheckedRecord:
        if self._quarantine.at(position) is not None:
            raise Corrupt(f"the record at {position} is in a damaged region of the log")
        claimed = int.from_bytes(view[4:8], "big") if len(view) >= RECORD_FIXED_BYTES else 0
        if claimed != MAGIC:
            raise Rejected(f"no record starts at position {position}")
        return check_stored(view, 0, len(view), position)

    def offset_position(self, topic: str, queue_id: int, offset: int) -> int:
        """The log position of the message at `offset`; -1 if there is none."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1
        unit = queue.units(offset, 1)
        if not len(unit) or unit["size"][0] == FILLER_SIZE:
            return -1
        return int(unit["position"][0])

    def offset_at(self, topic: str, queue_id: int, position: int) -> int:
        """The first offset, from the minimum on, whose message is at or above a log position.

        The maximum if there is none, 0 for a queue never written.
        """
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.offset_at(position)

    # -- by time ----------------------------------------------------------------------------------

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time in ms of the message at `offset`; -1 if no readable message is there."""
        position = self.offset_position(topic, queue_id, offset)
        if position < 0:
            return -1
        try:
            return self._check(self._view_at(position), position).store_timestamp
        except (Rejected, Corrupt):
            return -1

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first offset stored at or after `timestamp_ms`; the maximum if there is none.

        Store times never decrease within a log, so a binary search finds it. A damaged message is
        treated like the next readable one after it.
        """
        found = self._queues.range_of(topic, queue_id)
        if found is None:
            return 0
        low, high = found
        while low < high:
            middle = (low + high) // 2
            known = middle
            while known < high and (at_ms := self.store_time(topic, queue_id, known)) < 0:
                known += 1
            if known == high or at_ms >= timestamp_ms:
                high = middle
            else:
                low = known + 1
        return low

    # -- by key -----------------------------------------------------------------------------------

    def find_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        below: int = ANYWHERE,
    ) -> list[memoryview]:
        """The newest `max_count` records of a topic with this key, newest first; see StoreView.

        Hashes collide, and the index has only seconds, so each candidate record is verified until
        enough are found.
        """
        if self._index is None:
            raise Rejected("this broker has no key index", hint="messageIndexEnable=true")
        candidates = self._index.find(
            index_hash(f"{topic}#{key}"), begin_ms=begin_ms // 1000 * 1000, end_ms=end_ms
        )
        name, span = topic.encode("utf-8", "replace"), range(begin_ms, end_ms + 1)
        looked_at = (
            self._if_meant(position, name, key, span, below)
            for position in candidates
            if position < below
        )
        return list(islice((record for record in looked_at if record is not None), max_count))

    def _if_meant(
        self, position: int, topic: bytes, key: str, span_ms: range, below: int
    ) -> memoryview | None:
        """The record at `position` if it matches and is whole; the checksum is last, as it costs
        most.
        """
        try:
            view = self._view_at(position)
            parts = parts_of(view, 0, len(view))
            if parts.store_timestamp not in span_ms or position + parts.size > below:
                return None
            if view[parts.topic_at : parts.topic_end] != topic:
                return None
            _, keys = labels(bytes(view[parts.props_at : parts.size]))
            if all(str(each, "utf-8", "replace") != key for each in keys):
                return None
            self._check(view, position)
        except (Rejected, Corrupt):  # deleted by age, or damaged: other candidates may still match
            return None
        return view[: parts.size]


class _Choice:
    """Which units of a run are read. `indexes`, `end`, `fillers` count from the first unit.

    `positions` and `sizes` are those of the chosen records, parallel to `indexes`.
    """

    __slots__ = ("_codes", "end", "fillers", "indexes", "positions", "sizes")

    def __init__(self, units: Units, below: int, log_end: int) -> None:
        self.positions = units["position"].astype(np.int64)
        self.sizes = units["size"].astype(np.int64)
        self.end = len(units)
        self._codes = units["code"]
        self.fillers: Longs = _NO_INDEXES
        self.indexes = np.arange(self.end)
        if not self.end:
            return
        ends = self.positions + self.sizes
        if int(self.sizes.max()) < FILLER_SIZE and int(ends.max()) <= below:
            return
        real = self.sizes != FILLER_SIZE
        # A unit that points past the end of the log is wrong; waiting would not make it right.
        beyond = real & (ends > below) & (ends <= log_end)
        if beyond.any():
            self.end = int(beyond.argmax())
        self.fillers = np.flatnonzero(~real[: self.end])
        self._keep(np.flatnonzero(real[: self.end]))

    def _keep(self, which: Longs | slice) -> None:
        """Keep only these of the chosen records."""
        self.positions = self.positions[which]
        self.sizes = self.sizes[which]
        self.indexes = self.indexes[which]
        self._codes = self._codes[which]

    def limit(self, codes: frozenset[int] | None, max_messages: int, max_bytes: int) -> None:
        """Keep records that match `codes`, as long as they fit; the first one is always kept."""
        if codes is not None:
            own = self._codes.astype(np.int64)
            matches = np.isin(own, np.fromiter(codes, np.int64, len(codes)))
            self._keep(np.flatnonzero(matches | (own < EXT_CODES_BELOW)))
        count = len(self.sizes)
        if count <= max_messages and int(self.sizes.sum()) <= max_bytes:
            return
        fit = max(1, int(np.searchsorted(self.sizes.cumsum(), max_bytes, side="right")))
        fit = min(fit, max_messages)
        if fit < count:
            self.end = int(self.indexes[fit])
            self._keep(slice(0, fit))
            self.fillers = self.fillers[self.fillers < self.end]


def filter_records(
    read: QueueRead,
    offsets: list[int],
    positions: list[int],
    wanted: PropertyTest,
    *,
    max_messages: int,
    max_bytes: int,
) -> None:
    """Keep in `read` the records that pass, as long as they fit; the first one is always kept.

    `offsets` and `positions` are those of its records. If the result is full, it ends before the
    first record that passes and does not fit.
    """
    records = read.records
    kept: list[memoryview] = []
    size = 0
    last = -1
    for index, found in enumerate(values(records, wanted.names)):
        if not wanted(found):
            continue
        record = records[index]
        if kept and (len(kept) == max_messages or size + len(record) > max_bytes):
            read.next_offset = offsets[index]
            read.corrupt_offsets = [
                each for each in read.corrupt_offsets if each < read.next_offset
            ]
            break
        kept.append(record)
        size += len(record)
        last = positions[index]
    read.records = kept
    read.size_bytes = size
    read.last_position = last
