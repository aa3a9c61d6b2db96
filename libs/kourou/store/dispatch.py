"""What a record becomes in the projections: one code path, live and at every rebuild.

Lives here: from a batch of records to queue units and index entries, and which queues grew by it.
May not live here: how units and entries lie in files, where the records come from.

State: soft, a position: everything below `end` has been dispatched. The projections themselves say
what they hold, so a batch may be dispatched again: what is there already is left alone.

What becomes what (fact sheet §4.7, §5.3, §5.6):

    queue unit    of every record except prepared and rolled-back halves of transactions; its code
                  is the hash of the tags, in the delay topic the time of delivery
    index entry   of every record except rolled-back halves: the unique key, then each business key
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kourou.errors import BadRequest
from kourou.model.limits import QUEUE_UNIT_BYTES
from kourou.model.names import SCHEDULE_TOPIC
from kourou.model.sysflag import SysFlag
from kourou.protocol.properties import find_property
from kourou.protocol.record_batch import (
    RecordColumns,
    codes_and_keys,
    columns,
    tag_codes,
    topics_of,
)
from kourou.protocol.record_keys import code_and_keys
from kourou.protocol.record_layout import parts_of
from kourou.store.consume_queue import GAP_UNITS_MAX, ConsumeQueue
from kourou.store.disk import Buffer, as_store_error
from kourou.store.index_keys import KeyHashes
from kourou.store.key_index import KeyIndex
from kourou.store.queue_files import UNIT, Units
from kourou.store.queue_table import ConsumeQueues

SCALAR_RECORDS_MAX = 6
"""A batch of no more records is quicker done one by one than with arrays."""

_TYPE = int(SysFlag.TRANSACTION_MASK)
_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
_QUEUE_BITS = 32
_QUEUE_MASK = (1 << _QUEUE_BITS) - 1
_UNIT = struct.Struct(">qiq")
_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()
_TOPICS_KNOWN_MAX = 65_536

Longs = npt.NDArray[np.int64]

_NO_LONGS: Longs = np.empty(0, np.int64)
_NO_HASHES: npt.NDArray[np.int32] = np.empty(0, np.int32)


class Growth(NamedTuple):
    """A queue has new messages, of offsets [first_offset, max_offset), with these codes."""

    topic: str
    queue_id: int
    first_offset: int
    max_offset: int
    codes: Longs


@dataclass(slots=True)
class _Batch:
    """Parallel columns of units to append; all belong to one queue, or are sorted by queue."""

    offsets: Longs
    positions: Longs
    record_ends: Longs
    codes: Longs
    units: Units

    def part(self, first: int, end: int) -> _Batch:
        """The rows [first, end)."""
        return _Batch(
            self.offsets[first:end],
            self.positions[first:end],
            self.record_ends[first:end],
            self.codes[first:end],
            self.units[first:end],
        )


class Dispatcher:
    """Feeds the queues and the key index. One thread."""

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
        self._key_hashes = KeyHashes()
        self._delay_levels_ms = delay_levels_ms
        self._names: dict[bytes, str] = {}
        self.end = end
        self.units = 0
        self.repeated = 0
        self.conflicting = 0
        self.begun_anew = 0
        self.refused = 0
        self.fillers = 0
        self.fillers_replaced = 0

    def resume(self, end: int) -> None:
        """Everything below this log position counts as dispatched; the next batch follows it."""
        self.end = end

    def dispatch(self, records: RecordColumns) -> list[Growth]:
        """Project a batch of records, which follow one another in the log.

        Between `end` and the first of them there must be nothing to dispatch: a segment's filler,
        quarantined bytes. Returns the queues that grew. DiskFull or StoreFaulted if the disk
        refuses a queue; then `end` stays, and the same records may be handed in again. The key
        index refuses nobody: see KeyIndex.state.
        """
        if not len(records):
            return []
        topics, topic_ids = topics_of(records)
        keys: list[list[bytes]] = []
        if self._index is None:
            codes = tag_codes(records)
        else:
            codes, keys = codes_and_keys(records)
        self._set_delivery_times(records, topics, topic_ids, codes)
        try:
            if len(records) <= SCALAR_RECORDS_MAX:
                grown = self._queue_few(records, topics, topic_ids, codes)
            else:
                grown = self._queue_many(records, topics, topic_ids, codes)
        except OSError as error:
            raise as_store_error(error, "dispatch to the consume queues") from error
        first = int(records.positions[0])
        end = int(records.positions[-1]) + int(records.sizes[-1])
        if self._index is not None:
            span = (min(self.end, first), end)
            self._put_keys(self._index, records, topics, topic_ids, keys, span)
        self.end = max(self.end, end)
        return grown

    def dispatch_one(self, record: Buffer, position: int) -> tuple[list[Growth], int]:
        """As `dispatch`, for one whole stored record at `position`; its store time in ms, too.

        For arrays of one element numpy's fixed costs would be most of the time.
        """
        parts = parts_of(record, 0, len(record))
        topic = bytes(record[parts.topic_at : parts.topic_end])
        queue = None
        seen = parts.sys_flag & _TYPE not in (_PREPARED, _ROLLBACK)
        if seen and parts.queue_id >= 0 and topic != _SCHEDULE_TOPIC:
            queue = self._queue(topic, parts.queue_id, 0)
        offset = parts.queue_offset
        if queue is None or offset != queue.max_offset or position < queue.end_position:
            alone = columns(record, np.zeros(1, np.int64), np.asarray([len(record)], np.int64))
            return self.dispatch(alone), parts.store_timestamp
        code, keys = code_and_keys(bytes(record[parts.props_at :]))
        end = position + len(record)
        try:
            queue.append(offset, _UNIT.pack(position, len(record), code), end)
        except OSError as error:
            raise as_store_error(error, "dispatch to the consume queues") from error
        self.units += 1
        if self._index is not None:
            hashes = [self._key_hashes.one(topic, key) for key in keys]
            count = len(hashes)
            self._index.put_many(
                hashes,
                [position] * count,
                [parts.store_timestamp] * count,
                start=min(self.end, position),
                end=end,
            )
        self.end = max(self.end, end)
        codes = np.asarray([code], np.int64)
        growth = Growth(queue.topic, queue.queue_id, offset, offset + 1, codes)
        return [growth], parts.store_timestamp

    def pass_over(self, end: int) -> None:
        """Between `self.end` and `end` there is nothing to project: a filler, damaged bytes."""
        if end > self.end:
            if self._index is not None:
                self._index.put_many(_NO_HASHES, _NO_LONGS, _NO_LONGS, start=self.end, end=end)
            self.end = end

    def catch_up_index(self, records: RecordColumns, end: int) -> None:
        """Project records into the key index only, from the first one at or above its `covered` on.

        `end` is where the caller stopped reading the log. For an index that is BEHIND.
        """
        index = self._index
        if index is None:
            return
        span = (index.covered, end)
        if len(records):
            topics, topic_ids = topics_of(records)
            _, keys = codes_and_keys(records)
            self._put_keys(index, records, topics, topic_ids, keys, span)
        else:
            index.put_many(_NO_HASHES, _NO_LONGS, _NO_LONGS, start=span[0], end=end)

    def dispatch_gap(self, topic: str, queue_id: int, offset: int) -> int:
        """Keep an offset whose record is damaged; returns how many fillers that took."""
        try:
            count = self._queues.get_or_create(topic, queue_id).keep_offset(offset)
        except OSError as error:
            raise as_store_error(error, "dispatch to the consume queues") from error
        self.fillers += count
        return count

    def flush(self) -> int:
        """Make the projections survive a power loss; returns the position up to which all do.

        Thread-safe. An index that is BEHIND holds this position back: a restart begins there.
        Raises StoreFaulted if the disk fails, and ever after.
        """
        end = self.end
        self._queues.flush_all()
        if self._index is None:
            return end
        self._index.flush()
        return min(end, self._index.flushed)

    def statistics(self) -> dict[str, int]:
        """A snapshot for people and metrics."""
        return {
            "end": self.end,
            "units": self.units,
            "repeated": self.repeated,
            "conflicting": self.conflicting,
            "begun_anew": self.begun_anew,
            "refused": self.refused,
            "fillers": self.fillers,
            "fillers_replaced": self.fillers_replaced,
        }

    # -- queues -----------------------------------------------------------------------------------

    def _queue_many(
        self, records: RecordColumns, topics: list[bytes], topic_ids: Longs | None, codes: Longs
    ) -> list[Growth]:
        kinds = records.sys_flags & _TYPE
        chosen: Longs | None = None
        if kinds.any() or (records.queue_ids < 0).any():
            fit = records.queue_ids >= 0
            self.refused += len(fit) - int(np.count_nonzero(fit))
            chosen = np.flatnonzero(fit & (kinds != _PREPARED) & (kinds != _ROLLBACK))
            if not len(chosen):
                return []
        keys = records.queue_ids.astype(np.int64)
        if topic_ids is not None:
            keys |= topic_ids << _QUEUE_BITS
        order = keys.argsort(kind="stable")
        if chosen is not None:
            order = order[np.isin(order, chosen)]
        units = np.empty(len(order), UNIT)
        positions, sizes, codes = records.positions[order], records.sizes[order], codes[order]
        units["position"] = positions
        units["size"] = sizes
        units["code"] = codes
        batch = _Batch(records.queue_offsets[order], positions, positions + sizes, codes, units)
        return self._append_groups(topics, keys[order], batch)

    def _append_groups(self, topics: list[bytes], keys: Longs, batch: _Batch) -> list[Growth]:
        """Append units that are sorted by topic and queue, and within a queue as in the log."""
        offsets = batch.offsets
        changes = keys[1:] != keys[:-1]
        smooth = bool((changes | (offsets[1:] - offsets[:-1] == 1)).all())
        data = batch.units.tobytes() if smooth else b""
        first_offsets = offsets.tolist()
        positions, record_ends = batch.positions.tolist(), batch.record_ends.tolist()
        grown: list[Growth] = []
        first = 0
        for end in [*(np.flatnonzero(changes) + 1).tolist(), len(keys)]:
            key = int(keys[first])
            queue = self._queue(topics[key >> _QUEUE_BITS], key & _QUEUE_MASK, end - first)
            if queue is not None:
                offset = first_offsets[first]
                follows = offset == queue.max_offset and positions[first] >= queue.end_position
                if smooth and follows:
                    piece = data[first * QUEUE_UNIT_BYTES : end * QUEUE_UNIT_BYTES]
                    queue.append(offset, piece, record_ends[end - 1])
                    self.units += end - first
                    codes = batch.codes[first:end]
                    grown.append(
                        Growth(queue.topic, queue.queue_id, offset, queue.max_offset, codes)
                    )
                else:
                    grown += self._append_carefully(queue, batch.part(first, end))
            first = end
        return grown

    def _append_carefully(self, queue: ConsumeQueue, batch: _Batch) -> list[Growth]:
        """Units of one queue of which some may be there already, or some before them missing."""
        grown: list[Growth] = []
        breaks = np.flatnonzero(batch.offsets[1:] - batch.offsets[:-1] != 1) + 1
        first = 0
        for end in [*breaks.tolist(), len(batch.offsets)]:
            offset = int(batch.offsets[first])
            if not offset and 0 < queue.end_position <= int(batch.positions[first]):
                # RocketMQ deleted the topic, and one of that name began anew: RocketMQ's queue has
                # what came then, and so has ours, live and at every rebuild.
                queue.remove()
                self.begun_anew += 1
            known = min(end - first, max(0, queue.max_offset - offset))
            if known:
                replaced, differ = queue.append_again(batch.units[first : first + known], offset)
                self.fillers_replaced += replaced
                self.repeated += known - replaced - differ
                self.conflicting += differ
                first += known
            gap = int(batch.offsets[first]) - queue.max_offset if first < end else 0
            if gap > GAP_UNITS_MAX and queue.max_offset > queue.first_offset:
                self.refused += end - first  # a damaged offset, in a record without a whole CRC
            elif first < end and int(batch.positions[first]) < queue.end_position:
                self.conflicting += end - first  # RocketMQ ignores such a record too
            elif first < end:
                offset = int(batch.offsets[first])
                self.fillers += queue.append_units(batch.units[first:end], offset)
                self.units += end - first
                grown.append(
                    Growth(
                        queue.topic,
                        queue.queue_id,
                        offset,
                        queue.max_offset,
                        batch.codes[first:end],
                    )
                )
            first = end
        return grown

    def _queue_few(
        self, records: RecordColumns, topics: list[bytes], topic_ids: Longs | None, codes: Longs
    ) -> list[Growth]:
        """The same as `_queue_many` without its fixed costs; queues may come up more than once."""
        grown: list[Growth] = []
        kinds = (records.sys_flags & _TYPE).tolist()
        owners = [0] * len(kinds) if topic_ids is None else topic_ids.tolist()
        queue_ids, offsets = records.queue_ids.tolist(), records.queue_offsets.tolist()
        positions, sizes = records.positions.tolist(), records.sizes.tolist()
        for row, kind in enumerate(kinds):
            if kind in (_PREPARED, _ROLLBACK):
                continue
            queue = self._queue(topics[owners[row]], queue_ids[row], 1)
            if queue is None:
                continue
            offset, position, size = offsets[row], positions[row], sizes[row]
            code = codes[row : row + 1]
            data = _UNIT.pack(position, size, int(code[0]))
            if offset == queue.max_offset and position >= queue.end_position:
                queue.append(offset, data, position + size)
                self.units += 1
                grown.append(Growth(queue.topic, queue.queue_id, offset, offset + 1, code))
            else:
                one = slice(row, row + 1)
                batch = _Batch(
                    records.queue_offsets[one],
                    records.positions[one],
                    records.positions[one] + records.sizes[one],
                    code,
                    np.frombuffer(data, UNIT),
                )
                grown += self._append_carefully(queue, batch)
        return grown

    def _queue(self, topic: bytes, queue_id: int, count: int) -> ConsumeQueue | None:
        """The queue of `count` records; None if no directory may bear such a name."""
        name = self._names.get(topic)
        if name is None:
            if len(self._names) >= _TOPICS_KNOWN_MAX:
                self._names.clear()
            name = self._names[topic] = topic.decode("utf-8", "replace")
        try:
            return self._queues.get_or_create(name, queue_id)
        except BadRequest:
            self.refused += count  # only a foreign log can hold it; it stays readable by position
            return None

    def _set_delivery_times(
        self, records: RecordColumns, topics: list[bytes], topic_ids: Longs | None, codes: Longs
    ) -> None:
        """A delayed message's code is the time in ms when it is due, if it names a level."""
        if _SCHEDULE_TOPIC not in topics or not self._delay_levels_ms:
            return
        own = topics.index(_SCHEDULE_TOPIC)
        rows = range(len(records)) if topic_ids is None else np.flatnonzero(topic_ids == own)
        for row in rows:
            raw = find_property(records.properties(int(row)), b"DELAY")
            if raw is None or not raw.isdigit():
                continue
            level = min(int(raw[:9]), len(self._delay_levels_ms))
            if level > 0:
                codes[row] = records.store_timestamps[row] + self._delay_levels_ms[level - 1]

    # -- the key index ----------------------------------------------------------------------------

    def _put_keys(
        self,
        index: KeyIndex,
        records: RecordColumns,
        topics: list[bytes],
        topic_ids: Longs | None,
        keys: list[list[bytes]],
        span: tuple[int, int],
    ) -> None:
        """Index the keys of records that stand for the part `span` of the log."""
        rolled_back = records.sys_flags & _TYPE == _ROLLBACK
        if rolled_back.any():
            for row in np.flatnonzero(rolled_back).tolist():
                keys[row] = []
        hashes, rows = self._key_hashes.of(topics, topic_ids, keys)
        index.put_many(
            hashes,
            records.positions[rows],
            records.store_timestamps[rows],
            start=span[0],
            end=span[1],
        )
