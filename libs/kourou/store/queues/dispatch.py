"""Dispatching records to the projections: the same code live and in every rebuild.

State: soft, a position: everything below `end` has been dispatched. The projections know what they
hold, so a batch may be dispatched again: entries that exist already are not changed.

Projections:

    queue unit    of every record except prepared and rolled-back halves of transactions; its code
                  is the hash of the tags, in the delay topic the time of delivery
    index entry   of every record except rolled-back halves: the unique key, then each business key
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kourou.errors import BadRequest
from kourou.model.limits import QUEUE_UNIT_BYTES
from kourou.model.names import SCHEDULE_TOPIC
from kourou.protocol import kernel
from kourou.protocol.record.columns import Longs, RecordColumns
from kourou.protocol.record.properties import find_property
from kourou.store.disk import as_store_error
from kourou.store.index.key_index import KeyIndex
from kourou.store.queues.consume_queue import GAP_UNITS_MAX, ConsumeQueue
from kourou.store.queues.queue_files import UNIT, Units
from kourou.store.queues.queue_table import ConsumeQueues

_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()
_TOPICS_KNOWN_MAX = 65_536

_NO_KEYS = bytearray(), bytearray(), bytearray()


class Growth(NamedTuple):
    """A queue has new messages, with offsets [first_offset, max_offset)."""

    topic: str
    queue_id: int
    first_offset: int
    max_offset: int


class Dispatcher:
    """Feeds the queues and the key index. Runs in one thread."""

    def __init__(
        self,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        delay_levels_ms: tuple[int, ...],
        *,
        end: int = 0,
    ) -> None:
        self._queues = queues
        self._index = index
        self._delay_levels_ms = delay_levels_ms
        self._names: dict[bytes, str] = {}
        self.end = end
        self.units = 0
        self.repeated = 0
        self.conflicting = 0
        self.restarted = 0
        self.refused = 0
        self.fillers = 0
        self.fillers_replaced = 0

    def resume(self, end: int) -> None:
        """Everything below this log position counts as dispatched; the next batch starts there."""
        self.end = end

    def dispatch(self, records: RecordColumns) -> list[Growth]:
        """Project a batch of consecutive records of the log.

        Between `end` and the first record there must be nothing to dispatch: only a segment's
        filler or quarantined bytes. Returns the queues that have new messages. Raises DiskFull or
        StoreFaulted if a queue cannot be written; then `end` does not advance, and the same records
        may be passed again. The key index never causes an error: see KeyIndex.state.
        """
        if not len(records):
            return []
        topics, topic_of = kernel.topics(records.raw, records.raw_table)
        codes, *keys = kernel.project(records.raw, records.raw_table)
        if self._delay_levels_ms and _SCHEDULE_TOPIC in topics:
            self._set_delivery_times(records, topics, topic_of, codes)
        try:
            advanced = self._append_units(records, topics, topic_of, codes)
        except OSError as error:
            raise as_store_error(error, "dispatch to the consume queues") from error
        first, end = records.span
        if self._index is not None:
            _put_keys(self._index, keys, (min(self.end, first), end))
        self.end = max(self.end, end)
        return advanced

    def pass_over(self, end: int) -> None:
        """There is nothing to project between `self.end` and `end`: a filler or damaged bytes."""
        if end > self.end:
            if self._index is not None:
                _put_keys(self._index, _NO_KEYS, (self.end, end))
            self.end = end

    def catch_up_index(self, records: RecordColumns, end: int) -> None:
        """Project records into the key index only, from the first one at or above its `covered` on.

        `end` is the position up to which the caller read the log. For an index that is BEHIND.
        """
        index = self._index
        if index is None:
            return
        span = (index.covered, end)
        if len(records):
            _put_keys(index, kernel.project(records.raw, records.raw_table)[1:], span)
        else:
            _put_keys(index, _NO_KEYS, span)

    def dispatch_gap(self, topic: str, queue_id: int, offset: int) -> int:
        """Reserve the offset of a damaged record; returns how many fillers were written."""
        try:
            count = self._queues.get_or_create(topic, queue_id).keep_offset(offset)
        except OSError as error:
            raise as_store_error(error, "dispatch to the consume queues") from error
        self.fillers += count
        return count

    def flush(self, *, index: bool = True) -> None:
        """Make the queues durable, and the key index if `index`.

        Thread-safe. Raises StoreFaulted if the disk fails, and on every later call.
        """
        self._queues.flush_all()
        if index and self._index is not None:
            self._index.flush()

    def statistics(self) -> dict[str, int]:
        """A snapshot for operators and metrics."""
        return {
            "end": self.end,
            "units": self.units,
            "repeated": self.repeated,
            "conflicting": self.conflicting,
            "begun_anew": self.restarted,
            "refused": self.refused,
            "fillers": self.fillers,
            "fillers_replaced": self.fillers_replaced,
        }

    # -- queues -----------------------------------------------------------------------------------

    def _append_units(
        self,
        records: RecordColumns,
        topics: list[bytes],
        topic_of: bytearray | None,
        codes: bytearray,
    ) -> list[Growth]:
        units, offsets, groups, refused = kernel.queue_units(records.raw_table, codes, topic_of)
        self.refused += refused
        raw = bytes(units)
        advanced: list[Growth] = []
        first = 0
        for topic, queue_id, count, offset, begins, ends in groups:
            queue = self._queue(topics[topic], queue_id, count)
            if queue is not None:
                own = raw[first * QUEUE_UNIT_BYTES : (first + count) * QUEUE_UNIT_BYTES]
                if offset == queue.max_offset and begins >= queue.end_position:
                    queue.append(offset, own, ends)
                    self.units += count
                    advanced.append(Growth(queue.topic, queue_id, offset, queue.max_offset))
                else:
                    numbers = np.frombuffer(offsets, np.int64)[first : first + count]
                    advanced += self._append_carefully(queue, np.frombuffer(own, UNIT), numbers)
            first += count
        return advanced

    def _append_carefully(self, queue: ConsumeQueue, units: Units, offsets: Longs) -> list[Growth]:
        """Append units of one queue of which some may exist already, or some before them be
        missing.
        """
        advanced: list[Growth] = []
        positions = units["position"]
        breaks = np.flatnonzero(offsets[1:] - offsets[:-1] != 1) + 1
        first = 0
        for end in [*breaks.tolist(), len(offsets)]:
            offset = int(offsets[first])
            if not offset and 0 < queue.end_position <= int(positions[first]):
                # RocketMQ deleted the topic, and a topic of that name was created again: RocketMQ's
                # queue has only the later messages, and so has this one, live and in every rebuild.
                queue.remove()
                self.restarted += 1
            known = min(end - first, max(0, queue.max_offset - offset))
            if known:
                replaced, differ = queue.append_again(units[first : first + known], offset)
                self.fillers_replaced += replaced
                self.repeated += known - replaced - differ
                self.conflicting += differ
                first += known
            gap = int(offsets[first]) - queue.max_offset if first < end else 0
            if gap > GAP_UNITS_MAX and queue.max_offset > queue.first_offset:
                self.refused += end - first  # a damaged offset, in a record without a complete CRC
            elif first < end and int(positions[first]) < queue.end_position:
                self.conflicting += end - first  # RocketMQ ignores such a record too
            elif first < end:
                offset = int(offsets[first])
                self.fillers += queue.append_units(units[first:end], offset)
                self.units += end - first
                advanced.append(Growth(queue.topic, queue.queue_id, offset, queue.max_offset))
            first = end
        return advanced

    def _queue(self, topic: bytes, queue_id: int, count: int) -> ConsumeQueue | None:
        """The queue for `count` records; None if the topic cannot name a directory."""
        name = self._names.get(topic)
        if name is None:
            if len(self._names) >= _TOPICS_KNOWN_MAX:
                self._names.clear()
            name = self._names[topic] = topic.decode("utf-8", "replace")
        try:
            return self._queues.get_or_create(name, queue_id)
        except BadRequest:
            self.refused += count  # only another broker's log has it; readable by position
            return None

    def _set_delivery_times(
        self,
        records: RecordColumns,
        topics: list[bytes],
        topic_of: bytearray | None,
        codes: bytearray,
    ) -> None:
        """Set the code of delayed messages that name a level: the time in ms when they are due."""
        own = topics.index(_SCHEDULE_TOPIC)
        times = memoryview(codes).cast("q")
        numbers = None if topic_of is None else memoryview(topic_of).cast("q")
        for row in range(len(records)):
            if numbers is not None and numbers[row] != own:
                continue
            raw = find_property(records.properties(row), b"DELAY")
            if raw is None or not raw.isdigit():
                continue
            level = min(int(raw[:9]), len(self._delay_levels_ms))
            if level > 0:
                stored_ms = int(records.store_timestamps[row])
                times[row] = stored_ms + self._delay_levels_ms[level - 1]


def _put_keys(index: KeyIndex, keys: Sequence[bytearray], span: tuple[int, int]) -> None:
    """Index the keys of the log range `span`: hashes, positions and store times."""
    hashes, positions, store_ms = keys
    index.put_many(
        memoryview(hashes).cast("i"),
        memoryview(positions).cast("q"),
        memoryview(store_ms).cast("q"),
        start=span[0],
        end=span[1],
    )
