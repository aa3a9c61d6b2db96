"""Reads a store directory as a table, without a broker.

Every record is verified, since no broker does it: checksum, position, topic, queue and offset.

State: none of its own: the files are opened again for every request.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from kourou.errors import BadRequest, Corrupt, TopicNotFound
from kourou.filtering.tags import parse_tags
from kourou.model.limits import QUEUE_UNIT_BYTES
from kourou.model.topic import MessageQueue
from kourou.protocol.kernel_python import FILLER_SIZE
from kourou.protocol.record.columns import Longs, Marks, RecordColumns
from kourou.protocol.record.columns import columns as record_columns
from kourou.protocol.record.layout import parts_of
from kourou.store.log.verified import PlacedRecords, verify
from kourou.store.paths import StorePaths, start_of
from kourou.store.queues.queue_files import UNIT, Units
from kourou.store.real_disk import RealDisk, RealFile
from kourou.store.recovery.recovery_point import load_recovery_point
from kourou_spark_etl.source.arrow_rows import ArrowRows
from kourou_spark_etl.source.offsets import OffsetSpan
from kourou_spark_etl.source.options import ReadOptions
from kourou_spark_etl.source.ranges import QueueRange, lost

# -- the files of a store -------------------------------------------------------------------------

NOT_WHOLE_MAX = 100_000
"""The maximum number of incomplete records at the end of a queue; more are a damage."""


class ReadOnlyDisk(RealDisk):
    """The machine's file system, without any write access."""

    __slots__ = ()

    def open(
        self, path: Path, *, create_size: int | None = None, allocate: bool = False
    ) -> RealFile:
        """Open for reading; a missing file is not created."""
        del create_size, allocate
        return RealFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))


class StoreFiles:
    """The log of a store, and its queues."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._disk = ReadOnlyDisk()
        self._paths = StorePaths.under(root)
        self._views: dict[int, memoryview] = {}
        self._starts = self._segment_starts()

    def again(self) -> StoreFiles:
        """The same store with its current files."""
        return StoreFiles(self._root)

    def _segment_starts(self) -> list[int]:
        names = self._disk.list_dir(self._paths.commit_log)
        return sorted(start for name in names if (start := start_of(name)) is not None)

    @property
    def log_start(self) -> int:
        """The first existing position of the log."""
        return self._starts[0] if self._starts else 0

    @cached_property
    def segment_bytes(self) -> int:
        """The length of every segment, taken from the first one."""
        return self._paths.segment(self._starts[0]).stat().st_size

    @cached_property
    def confirmed(self) -> int | None:
        """The flushed position: nothing is read beyond it; None if the store has none."""
        point = load_recovery_point(self._disk, self._paths.recovery_point)
        return None if point is None else point.flushed

    def topics(self) -> list[str]:
        """The topics that have queues."""
        return self._disk.list_dir(self._paths.consume_queue)

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that were ever written."""
        names = self._disk.list_dir(self._paths.consume_queue / topic)
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def queue(self, queue: MessageQueue) -> QueueUnits:
        """The units of one queue."""
        return QueueUnits(self._paths.queue(queue.topic, queue.queue_id), self._disk)

    def segment(self, position: int) -> tuple[int, memoryview]:
        """The segment that contains a position: its start, and its bytes.

        Raises FileNotFoundError if it was deleted, Corrupt if its size is wrong.
        """
        start = position - position % self.segment_bytes if self._starts else 0
        view = self._views.get(start)
        if view is None:
            fd = os.open(self._paths.segment(start), os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                if size != self.segment_bytes:
                    raise Corrupt(
                        f"the log segment at {start} has {size} bytes, but the first one has "
                        f"{self.segment_bytes}",
                        hint="the store was copied incompletely, or written with two segment sizes",
                    )
                view = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
            finally:
                os.close(fd)
            self._views[start] = view
        return start, view

    # -- readable range of a queue ----------------------------------------------------------------

    def span(self, queue: MessageQueue) -> OffsetSpan:
        """The offsets whose records can be read."""
        units = self.queue(queue)
        low = units.first_at(self.log_start)
        high = units.end
        if self.confirmed is not None:
            high = units.end_below(self.confirmed, low)
        for _ in range(NOT_WHOLE_MAX):
            if high <= low or self._is_whole(queue, units, high - 1):
                break
            high -= 1
        return OffsetSpan(min(low, high), high)

    def _is_whole(self, queue: MessageQueue, units: QueueUnits, offset: int) -> bool:
        unit = units.read(offset, offset + 1)
        if not len(unit) or int(unit["size"][0]) == FILLER_SIZE:
            return bool(len(unit))
        try:
            base, view = self.segment(int(unit["position"][0]))
        except FileNotFoundError:
            return False
        return bool(self.whole(view, base, unit, queue, np.array([offset]))[0])

    def whole(
        self, view: memoryview, base: int, units: Units, queue: MessageQueue, offsets: Longs
    ) -> Marks:
        """Which of these units of one segment refer to records that pass every check."""
        starts = units["position"].astype(np.int64) - base
        sizes = units["size"].astype(np.int64)
        inside: Marks = (starts >= 0) & (sizes > 0) & (starts + sizes <= len(view))
        which = np.flatnonzero(inside)
        if len(which):
            begins, own, positions, indexes = (
                array("q", column[which].tobytes())
                for column in (starts, sizes, starts + base, offsets)
            )
            placed = PlacedRecords(view, 0, begins, own, positions, indexes)
            good = verify(placed, queue.topic.encode(), queue.queue_id, 0)
            inside[which] = np.frombuffer(good, np.uint8) != 0
        return inside

    def store_time(self, units: QueueUnits, offset: int) -> int | None:
        """When a message was stored, in ms; None if its record cannot be read."""
        unit = units.read(offset, offset + 1)
        if not len(unit) or int(unit["size"][0]) == FILLER_SIZE:
            return None
        try:
            base, view = self.segment(int(unit["position"][0]))
            at = int(unit["position"][0]) - base
            return parts_of(view, at, at + int(unit["size"][0])).store_timestamp
        except (FileNotFoundError, Corrupt):
            return None


class QueueUnits:
    """The units of one queue, over all its files."""

    def __init__(self, directory: Path, disk: ReadOnlyDisk) -> None:
        self._directory = directory
        names = [name for name in disk.list_dir(directory) if start_of(name) is not None]
        if not names:
            raise BadRequest(f"queue {directory} has no files")
        self._file_bytes = (directory / names[0]).stat().st_size
        if not self._file_bytes or self._file_bytes % QUEUE_UNIT_BYTES:
            raise Corrupt(
                f"{directory / names[0]} has {self._file_bytes} bytes, not a multiple of "
                "the entry size"
            )
        self._file_units = self._file_bytes // QUEUE_UNIT_BYTES
        self._names = sorted(names)

    @property
    def first(self) -> int:
        """The first offset of the files."""
        start = start_of(self._names[0])
        assert start is not None, "files were chosen by their names"
        return start // QUEUE_UNIT_BYTES

    @cached_property
    def end(self) -> int:
        """The offset after the last unit in use."""
        room = self.first + len(self._names) * self._file_units
        return self._bisect(self.first, room, lambda unit: int(unit["size"]) > 0)

    def end_below(self, position: int, low: int) -> int:
        """The offset after the last unit whose record ends at or below a log position."""

        def below(unit: np.void) -> bool:
            size = int(unit["size"])
            return size == FILLER_SIZE or int(unit["position"]) + size <= position

        return self._bisect(low, self.end, below)

    def first_at(self, position: int) -> int:
        """The first unit whose record is at or above a log position; the end if there is none."""
        at = self.first
        while at < self.end:
            units = self.read(at, min(self.end, at + self._file_units))
            there = (units["size"] != FILLER_SIZE) & (units["position"] >= position)
            if there.any():
                return at + int(there.argmax())
            at += len(units)
        return self.end

    def _bisect(self, low: int, high: int, holds: Callable[[np.void], bool]) -> int:
        while low < high:
            middle = (low + high) // 2
            unit = self.read(middle, middle + 1)
            if len(unit) and holds(unit[0]):
                low = middle + 1
            else:
                high = middle
        return low

    def read(self, offset: int, end: int) -> Units:
        """The units [offset, end); fewer if files end or were deleted."""
        parts: list[bytes] = []
        while offset < end:
            number, unit = divmod(offset, self._file_units)
            last = min(end, (number + 1) * self._file_units)
            path = self._directory / f"{number * self._file_bytes:020d}"
            size = (last - offset) * QUEUE_UNIT_BYTES
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                break
            try:
                data = os.pread(fd, size, unit * QUEUE_UNIT_BYTES)
            finally:
                os.close(fd)
            parts.append(data[: len(data) - len(data) % QUEUE_UNIT_BYTES])
            if len(data) < size:
                break
            offset = last
        return np.frombuffer(b"".join(parts), UNIT)


# -- reading --------------------------------------------------------------------------------------

BATCH_BYTES = 8 * 1024 * 1024


class StoreFacts:
    """The information of a store directory; see kourou_spark_etl.source.ranges.OffsetFacts.

    A directory does not contain its broker's name: `broker_name`, or its own name, is used.
    """

    def __init__(self, root: Path, broker_name: str = "") -> None:
        self._root = root
        self._broker = broker_name or root.name

    def topics(self) -> list[str]:
        """The topics that have queues."""
        return StoreFiles(self._root).topics()

    def spans(self, topics: Sequence[str], *, all_of: bool) -> dict[MessageQueue, OffsetSpan]:
        """The offset ranges of every queue of these topics that was ever written."""
        files = StoreFiles(self._root)
        found: dict[MessageQueue, OffsetSpan] = {}
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
