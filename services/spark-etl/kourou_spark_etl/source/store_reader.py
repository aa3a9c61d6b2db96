"""Reads a store directory as a table, without a broker.

Every record is verified, since no broker does it: checksum, position, topic, queue and offset.

State: none of its own: the files are opened again for every request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from kourou.errors import BadRequest, TopicNotFound
from kourou.filtering.tags import parse_tags
from kourou.model.topic import MessageQueue
from kourou.protocol.record.columns import Longs, Marks, RecordColumns
from kourou.protocol.record.columns import columns as record_columns
from kourou.store.queues.queue_files import FILLER_SIZE, Units
from kourou_spark_etl.source.arrow_rows import ArrowRows
from kourou_spark_etl.source.data_loss import lost
from kourou_spark_etl.source.offsets import Span
from kourou_spark_etl.source.options import ReadOptions
from kourou_spark_etl.source.planning import QueueRange
from kourou_spark_etl.source.store_files import QueueUnits, StoreFiles

BATCH_BYTES = 8 * 1024 * 1024


class StoreFacts:
    """The information of a store directory; see kourou_spark_etl.source.bounds.Facts.

    A directory does not contain its broker's name: `broker_name`, or its own name, is used.
    """

    def __init__(self, root: Path, broker_name: str = "") -> None:
        self._root = root
        self._broker = broker_name or root.name

    def topics(self) -> list[str]:
        """The topics that have queues."""
        return StoreFiles(self._root).topics()

    def spans(self, topics: Sequence[str], *, all_of: bool) -> dict[MessageQueue, Span]:
        """The offset ranges of every queue of these topics that was ever written."""
        files = StoreFiles(self._root)
        found: dict[MessageQueue, Span] = {}
        for topic in topics:
            numbers = files.queue_ids(topic)
            if not numbers and all_of:
                raise TopicNotFound(
                    f"store {self._root} has no topic {topic!r}",
                    hint=f"it has {', '.join(files.topics()[:20]) or 'none'}",
                )
            for number in numbers:
                queue = MessageQueue(topic, self._broker, number)
                found[queue] = files.span(queue)
        return found

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time; store times do not decrease within a log."""
        files = StoreFiles(self._root)
        span, units = files.span(queue), files.queue(queue)
        low, high = span.low, span.high
        while low < high:
            middle = known = (low + high) // 2
            while (at_ms := files.store_time(units, known)) is None and known + 1 < high:
                known += 1
            if at_ms is None or at_ms >= timestamp_ms:
                high = middle
            else:
                low = known + 1
        return low

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Raises BadRequest, because a directory stores no offsets for readers."""
        raise BadRequest("a store directory is read-only: offsets cannot be committed")

    def close(self) -> None:
        """Does nothing, because no file is open."""


def read_store_range(
    options: ReadOptions, part: QueueRange, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in order."""
    assert options.path is not None
    assert isinstance(options.wanted, str), "a path cannot be combined with filters"
    rows = ArrowRows(columns, parse_tags(part.topic, options.wanted).tags)
    read = _RangeRead(StoreFiles(options.path), rows, part, fail=options.fail_on_data_loss)
    return read.batches(options.pull_batch_size)


class _RangeRead:
    def __init__(self, files: StoreFiles, rows: ArrowRows, part: QueueRange, *, fail: bool) -> None:
        self._files = files
        self._rows = rows
        self._part = part
        self._queue = part.queue
        self._fail = fail

    def batches(self, count_max: int) -> Iterator[pa.RecordBatch]:
        """The rows; a batch is from one segment."""
        units = self._files.queue(self._queue)
        offset = self._first(units)
        while offset < self._part.end:
            some = units.read(offset, min(self._part.end, offset + count_max))
            if not len(some):
                units, offset = self._after_deletion(offset)
                continue
            some = some[: self._together(some)]
            batch = self._batch(some, np.arange(offset, offset + len(some)))
            if batch is not None and batch.num_rows:
                yield batch
            offset += len(some)

    def _first(self, units: QueueUnits) -> int:
        """The first offset to read; deletions before the queue was known are not data loss."""
        begin = self._part.begin
        low = units.first_at(self._files.log_start)
        if begin >= low:
            return begin
        if not self._part.fresh:
            self._lost(f"offsets {begin} to {low} were deleted")
        return low

    def _after_deletion(self, offset: int) -> tuple[QueueUnits, int]:
        """Reopen the files, after retention deleted the units at `offset` during the read."""
        self._files = self._files.again()
        units = self._files.queue(self._queue)
        low = units.first_at(self._files.log_start)
        if low <= offset or not len(units.read(low, low + 1)):
            low = self._part.end
        self._lost(f"offsets {offset} to {low} were deleted")
        return units, low

    def _together(self, units: Units) -> int:
        """How many of the first units refer to records of one segment, within the batch size."""
        real = units["size"] != FILLER_SIZE
        sizes = np.where(real, units["size"], 0).astype(np.int64)
        count = int(np.searchsorted(np.cumsum(sizes), BATCH_BYTES, "right"))
        segments = units["position"][real] // self._files.segment_bytes
        if len(segments) and segments[0] != segments[-1]:
            other = int(np.flatnonzero(real)[int(np.argmax(segments != segments[0]))])
            count = min(count, other)
        return max(1, count)

    def _batch(self, units: Units, offsets: Longs) -> pa.RecordBatch | None:
        """The rows of units of one segment."""
        good: Marks = units["size"] != FILLER_SIZE
        which = np.flatnonzero(good)
        records: RecordColumns | None = None
        if len(which):
            try:
                base, view = self._files.segment(int(units["position"][which[0]]))
            except FileNotFoundError:
                good[:] = False
            else:
                good[which] = self._files.whole(
                    view, base, units[which], self._queue, offsets[which]
                )
                starts = units["position"][good].astype(np.int64) - base
                records = record_columns(view, starts, units["size"][good].astype(np.int64))
        if not good.all():
            first = int(offsets[int(np.argmin(good))])
            self._lost(f"{int((~good).sum())} messages from {first} on are damaged or missing")
        return self._rows.batch(self._queue, records) if records is not None else None

    def _lost(self, what: str) -> None:
        lost(f"{self._queue!s}: {what}", fail=self._fail)
