"""Reading: from an offset, a key or a time to whole, verified records.

State: none, except counters.

Invariants:  a record leaves this module only if it is whole and the requested one
               (kourou.store.log.verified)
             a damaged record costs only its own offset
             records that are back to back in the mapped log are not copied

Reading by time is a binary search over the store times of the queue's own messages. RocketMQ 4.9
first selects a file by its modification time, which a restored backup or a touched file makes
wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import islice, pairwise

from kourou.engine.ports import ANYWHERE, PropertyTest, QueueRead
from kourou.errors import Corrupt, Rejected
from kourou.model.limits import (
    FILTER_BYTES_MAX,
    FILTER_RECORDS_MAX,
    FILTER_UNITS_MAX,
    RECORD_FIXED_BYTES,
)
from kourou.protocol.kernel import choose, gather, value_groups
from kourou.protocol.kernel_python import FILLER_SIZE, ChosenUnits
from kourou.protocol.record.hashes import index_hash
from kourou.protocol.record.layout import MAGIC, parts_of
from kourou.protocol.record.message_record import CheckedRecord, record_size
from kourou.protocol.record.properties import labels
from kourou.store.index.key_index import KeyIndex
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine
from kourou.store.log.verified import PlacedRecords, check_stored, verify
from kourou.store.queues.consume_queue import ConsumeQueue
from kourou.store.queues.queue_files import UNIT_STRUCT
from kourou.store.queues.queue_table import ConsumeQueues

LIGHT_QUEUE_PREFIX = "%LMQ%"
"""RocketMQ's light queues refer to records that belong to other queues."""

_READ_AHEAD_BYTES = 64 * 1024
"""If the log is not mapped, up to this many unneeded bytes are read to avoid a second read."""


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

    def queue_bytes(self, topic: str, queue_id: int, first: int, end: int) -> int:
        """The size of the records at offsets [first, end); see StoreView."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.size_bytes(first, end)

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
        count, limits = max_messages, (max_messages, max_bytes)
        if wanted is not None:
            count, limits = FILTER_RECORDS_MAX, (FILTER_RECORDS_MAX, FILTER_BYTES_MAX)
        elif codes is not None:
            count = max(max_messages, FILTER_UNITS_MAX)
        sorted_codes = None if codes is None else array("q", sorted(codes))
        units = queue.unit_bytes(offset, count)
        below = min(below, self._log.readable_end)
        chosen = ChosenUnits(*choose(units, below, self._log.end, sorted_codes, *limits))
        if not chosen.end:
            return read
        placed = self._fetch(chosen)
        rows = self._accept(read, queue, offset, chosen, placed)
        if wanted is not None:
            rows = keep_passing(read, offset, placed, rows, wanted, max_messages, max_bytes)
        if rows:
            read.first_position = placed.positions[rows[0]]
            read.last_position = placed.positions[rows[-1]]
            starts, sizes = placed.places(rows)
            read.sizes = sizes
            read.run = placed.view
            if not (chosen.adjacent and len(rows) == chosen.number):
                read.run = memoryview(gather(placed.view, starts, sizes, placed.base))
        return read

    def _fetch(self, chosen: ChosenUnits) -> PlacedRecords:
        """The bytes of the chosen records: one view if they lie in one segment, else copies.

        If the log is not mapped, a view is a copy too, of everything between the records.
        """
        table = memoryview(chosen.table).cast("q")
        room, count = len(table) // 3, chosen.number
        indexes, positions, sizes = (table[at : at + count] for at in range(0, 3 * room, room))
        span = chosen.high - chosen.low
        if self._log.mapped or span <= 2 * chosen.total + _READ_AHEAD_BYTES:
            try:
                view = self._log.view(chosen.low, span)
            except Rejected:  # they lie in several segments, or a unit is wrong
                pass
            else:
                return PlacedRecords(view, chosen.low, positions, sizes, positions, indexes)
        copies: list[memoryview] = []
        starts = array("q")
        end = 0
        for position, size in zip(positions, sizes, strict=True):
            starts.append(end)
            try:
                copies.append(self._log.view(position, size))
            except Rejected:  # outside the log: what follows here is not at this position
                continue
            end += size
        return PlacedRecords(memoryview(b"".join(copies)), 0, starts, sizes, positions, indexes)

    def _accept(
        self,
        read: QueueRead,
        queue: ConsumeQueue,
        offset: int,
        chosen: ChosenUnits,
        placed: PlacedRecords,
    ) -> Sequence[int]:
        """Verify the records; return the good ones. `read` ends before the second run of damage."""
        topic = None if queue.topic.startswith(LIGHT_QUEUE_PREFIX) else queue.topic.encode()
        good = verify(placed, topic, queue.queue_id, offset)
        end = chosen.end
        rows: Sequence[int] = range(chosen.number)
        if chosen.fillers or 0 in good:
            bad = [row for row in rows if not good[row]]
            damaged = sorted([*chosen.fillers, *(placed.indexes[row] for row in bad)])
            end = next((b for a, b in pairwise(damaged) if b > a + 1), end)
            read.corrupt_offsets = [offset + index for index in damaged if index < end]
            rows = [row for row in rows if good[row] and placed.indexes[row] < end]
            self.corrupt_met += len(read.corrupt_offsets)
            self._met_damage([placed.positions[row] for row in bad])
        self.records_read += len(rows)
        read.next_offset = offset + end
        return rows

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
        unit = queue.unit_bytes(offset, 1)
        if not unit:
            return -1
        position, size, _ = UNIT_STRUCT.unpack(unit)
        return -1 if size == FILLER_SIZE else position

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


def keep_passing(
    read: QueueRead,
    offset: int,
    placed: PlacedRecords,
    rows: Sequence[int],
    wanted: PropertyTest,
    max_messages: int,
    max_bytes: int,
) -> list[int]:
    """The rows that pass, as long as they fit; the first one always fits.

    If the result is full, `read` ends before the first record that passes and does not fit.
    Records with the same values are tested once.
    """
    starts, sizes = placed.places(rows)
    values, group_of = value_groups(placed.view, starts, sizes, wanted.names, placed.base)
    outcomes = [wanted(each) for each in values]
    kept: list[int] = []
    size = failed = 0
    for row, group in zip(rows, memoryview(group_of).cast("q"), strict=True):
        if not outcomes[group]:
            failed += outcomes[group] is None
            continue
        own = placed.sizes[row]
        if kept and (len(kept) == max_messages or size + own > max_bytes):
            read.next_offset = offset + placed.indexes[row]
            read.corrupt_offsets = [at for at in read.corrupt_offsets if at < read.next_offset]
            break
        kept.append(row)
        size += own
    wanted.failed += failed
    return kept
