"""Reading: from an offset, a key or a time to whole, verified records.

Lives here: what the engine may ask of a store (kourou.engine.ports.StoreView), over log, queues and index.
May not live here: writing, recovery, what a consumer is answered (kourou.engine.pulls).

State: none but counters.

Invariants:  a record leaves this module only if its checksums hold and it is the one that was asked for:
                 its own position, topic, queue and offset say so
             a damaged record costs its own offset and no other
             whole records are views of the mapped log; nothing is copied

Reading by time goes through the store times of the queue's own messages by halving. RocketMQ 4.9 first
picks a file by its modification time; a restored backup or a touched file does not fool us.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from kourou.engine.ports import QueueRead
from kourou.errors import Corrupt, Rejected
from kourou.protocol.hashing import index_hash
from kourou.protocol.record import Blank, CheckedRecord, check_record
from kourou.protocol.record_batch import RecordColumns, columns, verify_batch
from kourou.store.commit_log import CommitLog
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.key_index import KeyIndex
from kourou.store.quarantine import Quarantine
from kourou.store.queue_files import FILLER_SIZE, Units
from kourou.store.queue_table import ConsumeQueues

FILTER_UNITS_MAX = 4_096
"""How many units one read with tags looks at; RocketMQ looks at 800."""

EXT_CODES_BELOW = -(1 << 31)
"""Codes below are addresses into RocketMQ's consumequeue_ext; the tag is not known from the unit."""

MULTI_QUEUE_PREFIX = "%LMQ%"
"""RocketMQ's light queues name records that belong to other queues."""

_SCALAR_BELOW = 8

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Reads:
    """The read half of a store."""

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
        self.corrupt_reads = 0

    # -- ranges -----------------------------------------------------------------------------------

    def log_range(self) -> tuple[int, int]:
        """First readable position and the end of what was appended."""
        return self._log.start, self._log.readable_end

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Minimum offset and the next offset to be written; None for a queue never written."""
        return self._queues.range_of(topic, queue_id)

    def is_recent(self, position: int) -> bool:
        """True when the record is likely still in memory (RocketMQ's 40 % rule)."""
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
    ) -> QueueRead:
        """Read from `offset` what lies below position `below`; see StoreView."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return QueueRead(next_offset=offset)
        read = QueueRead(
            next_offset=offset, min_offset=queue.min_offset, max_offset=queue.max_offset
        )
        count = max_messages if codes is None else max(max_messages, FILTER_UNITS_MAX)
        units = queue.units(offset, count)
        if not len(units):
            return read
        chosen = _Chosen(units, min(below, self._log.readable_end), codes)
        chosen.limit(max_messages, max_bytes)
        good, records = self._verified(queue, offset, chosen)
        self._fill(read, offset, chosen, good, records)
        return read

    def _fill(
        self,
        read: QueueRead,
        offset: int,
        chosen: _Chosen,
        good: list[bool],
        records: list[memoryview],
    ) -> None:
        """Put together what was found; stop before the second run of damaged offsets."""
        damaged = chosen.fillers + [
            index for index, ok in zip(chosen.indexes, good, strict=True) if not ok
        ]
        end = chosen.end
        if damaged:
            damaged.sort()
            last = damaged[0]
            for index in damaged[1:]:
                if index != last + 1:
                    end = index
                    break
                last = index
            read.corrupt_offsets = [offset + index for index in damaged if index < end]
            self.corrupt_reads += len(read.corrupt_offsets)
        taken = [
            (record, index)
            for record, index, ok in zip(records, chosen.indexes, good, strict=True)
            if ok and index < end
        ] if damaged else None
        if taken is None:
            read.records = records
            if records:
                read.last_position = chosen.positions[-1]
        else:
            read.records = [record for record, _ in taken]
            if taken:
                read.last_position = chosen.position_of(taken[-1][1])
        read.size_bytes = sum(map(len, read.records))
        read.next_offset = offset + end
