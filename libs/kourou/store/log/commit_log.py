"""The commit log: every record of every topic, in one sequence of bytes.

State: log.

Invariants:  start <= flushed <= written <= end <= allocated_end     (positions)
             written == end unless appended bytes are staged (`Staging`)
             segments have one size, are adjacent, and are fully reserved on disk before use
             after the first failed write or sync nothing is written or acknowledged any more, and
             readers see only what is below `flushed`; a failed fdatasync is never repeated, because
             Linux would then report success for data that never reached the disk

One thread appends. `write_out`, `flush` and `allocate_next` may run in other threads concurrently.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kourou.errors import ConfigError, Corrupt, DiskFull, Rejected, StoreFaulted
from kourou.store.disk import FULL, Buffer, Disk, File
from kourou.store.paths import StorePaths, start_of

_ZEROS = bytes(64 * 1024)


class Segment:
    """`size` bytes of the log from `start` on. Written with pwrite, read by mapping or pread."""

    __slots__ = ("_file", "_mapping", "_written", "end", "size", "start")

    def __init__(self, file: File, start: int, size: int, *, mapped: bool) -> None:
        self.start = start
        self.size = size
        self.end = start + size
        self._file = file
        self._written: list[tuple[int, int]] | None = None
        self._mapping: memoryview | None = file.mapped() if mapped else None

    def write(self, data: Buffer, position: int) -> None:
        """Write `data` at `position`; it must lie inside this segment."""
        assert self.start <= position <= self.end - len(data), (position, len(data))
        self._file.pwrite(data, position - self.start)

    def view(self, position: int, size: int) -> memoryview:
        """`size` bytes from `position` on; no copy if the segment is mapped."""
        at = position - self.start
        mapping = self._mapping
        if mapping is not None:
            return mapping[at : at + size]
        return memoryview(self._file.pread(size, at))

    def look(self, *, from_device: bool) -> None:
        """Record the written ranges before the segment is read, for a scan of its contents.

        `from_device`: drop cached pages first, because after a crash the cache may have data that
        never reached the disk. The ranges stay valid until `done_looking`, whatever is written in
        between.
        """
        if from_device:
            self._file.forget_cached()
        self._written = self._file.written_ranges()

    def done_looking(self) -> None:
        """Drop the recorded ranges: the segment is written to again."""
        self._written = None

    def next_data(self, position: int) -> int | None:
        """The first position from `position` on that may differ from zero."""
        at = position - self.start
        if self._written is None:
            found = self._file.next_data(at)
        else:
            found = next((max(at, first) for first, end in self._written if end > at), None)
        return None if found is None else self.start + found

    def is_zero_from(self, position: int) -> bool:
        """True if everything from `position` to the end is zero."""
        return next(self._pieces(position), None) is None

    def wipe(self, position: int) -> bool:
        """Zero everything from `position` to the end; True if anything was written.

        Bytes that are zero already are not written, so reserved space stays reserved and a segment
        of a gigabyte is not rewritten completely.
        """
        wiped = False
        for at, size in self._pieces(position):
            self._file.pwrite(_ZEROS[:size], at - self.start)
            wiped = True
        return wiped

    def _pieces(self, position: int) -> Iterator[tuple[int, int]]:
        """(position, length) of the pieces from `position` on that are not all zero."""
        at = self.next_data(position)
        while at is not None and at < self.end:
            size = min(len(_ZEROS), self.end - at)
            if self._file.pread(size, at - self.start).strip(b"\0"):
                yield at, size
            at = self.next_data(at + size) if at + size < self.end else None

    def fdatasync(self) -> None:
        """Return once everything written to this segment survives a power loss."""
        self._file.fdatasync()

    def modified_ms(self) -> int:
        """When it was last written, wall clock; for retention only."""
        return self._file.modified_ms()

    def close(self) -> None:
        """Close the file descriptor; views handed out, and the mapping, stay valid.

        A thread that looked this segment up before it was removed from the log may still read all
        of it.
        """
        self._file.close()


# -- buffers of appended bytes --------------------------------------------------------------------


class Staging:
    """Buffers in memory for appended bytes that are not written to the log's files yet.

    At most `buffers_max` buffers of `segment_size` bytes, each assigned to one segment.
    """

    __slots__ = ("_buffers", "_filled", "_free", "_segment_size", "_unmade")

    def __init__(self, buffers_max: int, segment_size: int) -> None:
        assert buffers_max >= 1
        self._segment_size = segment_size
        self._unmade = buffers_max
        self._free: list[memoryview] = []
        self._buffers: dict[int, memoryview] = {}
        self._filled: dict[int, int] = {}

    @property
    def free_count(self) -> int:
        """The number of free buffers."""
        return self._unmade + len(self._free)

    @property
    def leased_count(self) -> int:
        """The number of assigned buffers."""
        return len(self._buffers)

    def lease(self, start: int) -> bool:
        """Ensure that the segment at position `start` has a buffer; False if none is free.

        Raises MemoryError or OSError if the machine has no memory for it.
        """
        if start in self._buffers:
            return True
        if self._free:
            buffer = self._free.pop()
        elif self._unmade:
            buffer = memoryview(mmap.mmap(-1, self._segment_size))
            self._unmade -= 1
        else:
            return False
        self._filled[start] = start
        self._buffers[start] = buffer
        return True

    def put(self, data: Buffer, position: int) -> None:
        """Store bytes of a segment that has a buffer."""
        at = position % self._segment_size
        start = position - at
        self._buffers[start][at : at + len(data)] = data
        self._filled[start] = position + len(data)

    def take(self, position: int, end: int) -> memoryview:
        """The bytes put from `position` on, up to `end`, inside one segment; without fillers."""
        at = position % self._segment_size
        start = position - at
        return self._buffers[start][at : min(end, self._filled[start]) - start]

    def give_back(self, position: int) -> None:
        """Free the buffers of segments that end at or below `position`; they are in their files."""
        for start in sorted(self._buffers):
            if start + self._segment_size <= position:
                del self._filled[start]
                self._free.append(self._buffers.pop(start))


# -- the log --------------------------------------------------------------------------------------


_UNMAPPED_BYTES_MAX = 32 * 1024 * 1024


class CommitLog:
    """Opening it changes nothing on disk: only `allocate_next` and later calls do."""

    def __init__(
        self,
        disk: Disk,
        paths: StorePaths,
        segment_size: int,
        segments: Iterable[Segment],
        *,
        mapped: bool,
        staging_buffers: int = 0,
    ) -> None:
        self._disk = disk
        self._paths = paths
        self.mapped = mapped
        self._segments = {segment.start: segment for segment in segments}
        self.segment_size = segment_size
        self.start = min(self._segments, default=0)
        self.allocated_end = max(self._segments, default=-segment_size) + segment_size
        self.end = self.start
        self.written = self.start
        self.flushed = self.start
        self._staging = Staging(staging_buffers, segment_size) if staging_buffers else None
        self._dirty: dict[int, Segment] = {}
        self._fault: str | None = None
        self._state_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._allocate_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        disk: Disk,
        paths: StorePaths,
        segment_size: int,
        *,
        mapped: bool = True,
        staging_buffers: int = 0,
    ) -> CommitLog:
        """Open the existing segments; recovery sets `end` later.

        `mapped`: read through memory mappings (False: with pread). `staging_buffers`: the number of
        buffers that hold appended bytes until `write_out`; 0: bytes are written at once. Raises
        ConfigError if a file's length differs from `segment_size`, Corrupt if a segment is missing
        in the middle.
        """
        segments: list[Segment] = []
        try:
            for name in disk.list_dir(paths.commit_log):
                start = start_of(name)
                if start is None:
                    continue
                path = paths.commit_log / name
                file = disk.open(path)
                try:
                    _check_segment(path, start, file.size(), segment_size)
                    if segments and segments[-1].end != start:
                        raise Corrupt(
                            f"the commit log has a hole: no segment starts at {segments[-1].end}, "
                            f"the next is {name}",
                            hint="restore the missing file",
                        )
                    segments.append(Segment(file, start, segment_size, mapped=mapped))
                except BaseException:
                    file.close()
                    raise
        except BaseException:
            for segment in segments:
                segment.close()
            raise
        return cls(
            disk, paths, segment_size, segments, mapped=mapped, staging_buffers=staging_buffers
        )

    # -- positions --------------------------------------------------------------------------------

    @property
    def fault(self) -> str | None:
        """Why this log accepts no more writes; None while it works."""
        return self._fault

    @property
    def readable_end(self) -> int:
        """Readers may see bytes below this: written ones, or flushed ones once the log failed."""
        return self.written if self._fault is None else self.flushed

    @property
    def dirty_bytes(self) -> int:
        """Bytes written and not yet flushed."""
        return self.written - self.flushed

    @property
    def unwritten_bytes(self) -> int:
        """Bytes appended and not yet written; they are lost if the process is killed. 0 without
        staging.
        """
        return self.end - self.written

    @property
    def staged(self) -> bool:
        """True if appended bytes wait in memory for `write_out`."""
        return self._staging is not None

    @property
    def staging_full(self) -> bool:
        """True if the next segment would have to wait for a buffer that a finished segment still
        has.
        """
        staging = self._staging
        return staging is not None and not staging.free_count and staging.leased_count > 1

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first, spare ones included."""
        return [self._segments[start] for start in sorted(self._segments)]

    @property
    def spare_wanted(self) -> bool:
        """True while no unused whole segment is reserved after the one that is being written."""
        return self.allocated_end - self.end < self.segment_size

    def adopt_end(self, end: int, flushed: int) -> None:
        """Set the end that recovery found. The next `flush` syncs the bytes above `flushed`."""
        assert self.start <= flushed <= end <= self.allocated_end
        self.end = self.written = end
        self.flushed = flushed
        first = flushed - flushed % self.segment_size
        for segment in self.segments:
            if first <= segment.start < end:
                self._dirty[segment.start] = segment

    def start_at(self, position: int) -> None:
        """Start an empty log at the segment that holds `position`."""
        assert not self._segments
        self.start = self.allocated_end = position - position % self.segment_size
        self.end = self.written = self.flushed = self.start

    # -- writing ----------------------------------------------------------------------------------

    def allocate_next(self) -> int:
        """Reserve one more segment after the last and return the new `allocated_end`.

        Thread-safe. Raises DiskFull if there is no space (a later call may succeed), StoreFaulted
        if the disk fails.
        """
        with self._allocate_lock:
            self._check_fault()
            start = self.allocated_end
            path = self._paths.segment(start)
            try:
                file = self._disk.open(path, create_size=self.segment_size, allocate=True)
                self._disk.sync_dir(self._paths.commit_log)
            except OSError as error:
                if error.errno in FULL:
                    raise DiskFull(
                        f"no space for the next log segment of {self.segment_size} bytes",
                        hint="free space; reads continue",
                    ) from error
                raise self._fail(f"creating {path} failed: {error}") from error
            self._segments[start] = Segment(file, start, self.segment_size, mapped=self.mapped)
            self.allocated_end = start + self.segment_size
            return self.allocated_end

    def append(self, data: Buffer, at: int) -> None:
        """Append bytes to the log; they must not cross the end of a segment.

        Raises DiskFull if the segment is not reserved yet (nothing was written) and StoreFaulted if
        the write fails, after which nothing is written any more.
        """
        self._append(data, at, at + len(data))

    def close_segment(self, header: Buffer, at: int) -> None:
        """Append a filler's header, after which the log continues at the next segment."""
        self._append(header, at, at - at % self.segment_size + self.segment_size)

    def append_copied(self, data: Buffer, at: int, end: int) -> None:
        """Append a leader's bytes, after which the log continues at `end`.

        `end` is the end of `data`, or the end of the segment if the last bytes are a filler's
        header.
        """
        assert self._staging is None, "what is copied is written at once"
        self._append(data, at, end)

    def _append(self, data: Buffer, at: int, end: int) -> None:
        self._check_fault()
        assert at == self.end, (at, self.end)
        segment = self._segments.get(at - at % self.segment_size)
        if segment is None:
            raise DiskFull(f"no log segment is reserved at position {at}")
        if self._staging is not None:
            self._stage(self._staging, segment, data, at)
            self.end = end
            return
        try:
            segment.write(data, at)
        except OSError as error:
            raise self._fail(f"writing the log at {at} failed: {error}") from error
        # Both are set together, after the write: a concurrent flush either covers these bytes and
        # syncs the segment, or does neither.
        with self._state_lock:
            self._dirty[segment.start] = segment
            self.end = self.written = end

    def _stage(self, staging: Staging, segment: Segment, data: Buffer, at: int) -> None:
        try:
            if not staging.lease(segment.start):
                # All buffers wait to be written: write them here, which frees all but the newest
                # one.
                self.write_out()
                leased = staging.lease(segment.start)
                assert leased, (segment.start, staging.leased_count)
        except (OSError, MemoryError) as error:
            raise self._fail(f"no memory for what is appended at {at}: {error}") from error
        assert at + len(data) <= segment.end, (at, len(data))
        staging.put(data, at)

    def write_out(self) -> int:
        """Write the staged bytes to the files; returns the position up to which everything is
        written.

        Thread-safe; concurrent callers wait for one another. Written bytes are not flushed yet.
        Raises StoreFaulted if the disk fails, and on every later call.
        """
        with self._write_lock:
            self._check_fault()
            end, at, staging = self.end, self.written, self._staging
            if staging is None:
                return at
            touched: dict[int, Segment] = {}
            while at < end:
                segment = self._segments[at - at % self.segment_size]
                try:
                    segment.write(staging.take(at, end), at)
                except OSError as error:
                    raise self._fail(f"writing the log at {at} failed: {error}") from error
                touched[segment.start] = segment
                at = min(segment.end, end)
            with self._state_lock:
                self._dirty.update(touched)
                self.written = end
            staging.give_back(end)
            return end

    def flush(self) -> int:
        """Sync everything written before the call; returns the position up to which the log is
        synced.

        Thread-safe; concurrent callers wait for one another. The first failure fences the log
        permanently: this call and every later one raise StoreFaulted.
        """
        with self._flush_lock:
            self._check_fault()
            with self._state_lock:
                end = self.written
                dirty, self._dirty = self._dirty, {}
            for start in sorted(dirty):
                try:
                    dirty[start].fdatasync()
                except OSError as error:
                    raise self._fail(f"flushing log segment {start} failed: {error}") from error
            self._check_fault()
            self.flushed = max(self.flushed, end)
            return self.flushed

    def fail(self, reason: str) -> StoreFaulted:
        """Fence the log because another part of the store failed; returns the error to raise."""
        return self._fail(reason)

    def overwrite_damaged(self, data: Buffer, position: int) -> None:
        """Write good bytes over damaged ones, durably. Raises StoreFaulted."""
        self._check_fault()
        segment = self._segments[position - position % self.segment_size]
        try:
            segment.write(data, position)
            segment.fdatasync()
        except OSError as error:
            raise self._fail(f"repairing the log at {position} failed: {error}") from error

    def truncate(self, position: int) -> None:
        """Remove everything from `position` on, durably.

        Later segments that were written to are removed, and the rest of this one is zeroed; both
        are durable on return. Used for a tail without a readable record: if a power loss interrupts
        the truncation, recovery finds the tail torn again and truncates it again.
        """
        assert self.start <= position <= self.allocated_end
        self._check_fault()
        try:
            later = [segment for segment in self.segments if segment.start >= position]
            while later and later[-1].next_data(later[-1].start) is None:
                later.pop()  # nothing was written to it: it stays as the spare segment
            if later:
                doomed = [segment for segment in self.segments if segment.start >= position]
                self._drop(doomed[1:] if self._is_birthplace(doomed[0]) else doomed)
            last = self._segments.get(position - position % self.segment_size)
            if last is not None and last.wipe(position):
                last.fdatasync()
        except OSError as error:
            raise self._fail(f"truncating the log at {position} failed: {error}") from error
        self.allocated_end = max(self._segments, default=position - self.segment_size)
        self.allocated_end += self.segment_size
        self.end = self.written = position
        self.flushed = min(self.flushed, position)

    def detach_before(self, position: int) -> list[Segment]:
        """Detach the segments entirely below `position`; returns them, oldest first.

        Only flushed segments, so never the last used one. Their files stay until `remove_detached`.
        """
        doomed = [
            segment
            for segment in self.segments
            if segment.end <= position and segment.end <= self.flushed
        ]
        if doomed:
            self.start = doomed[-1].end
        for segment in doomed:
            self._segments.pop(segment.start)
            self._dirty.pop(segment.start, None)
        return doomed

    def remove_detached(self, segment: Segment) -> None:
        """Remove the file of a detached segment, durably; callable from any thread. Raises OSError.

        Callers remove them one by one, oldest first, so that a power loss leaves no hole.
        """
        self._disk.unlink(self._paths.segment(segment.start))
        self._disk.sync_dir(self._paths.commit_log)
        segment.close()

    def drop_spare(self) -> None:
        """Remove segments that nothing was written to, as RocketMQ does at a clean stop."""
        self._drop(
            [
                segment
                for segment in self.segments
                if segment.start >= self.end and not self._is_birthplace(segment)
            ]
        )
        self.allocated_end = max(self._segments, default=self.start - self.segment_size)
        self.allocated_end += self.segment_size

    def _is_birthplace(self, segment: Segment) -> bool:
        """True if this segment, though empty, is the only record of where the log starts."""
        return segment.start == self.start > 0

    def _drop(self, segments: list[Segment]) -> None:
        """Remove segments from the log's end, durably one by one: a crash leaves no hole."""
        for segment in reversed(segments):
            self._segments.pop(segment.start, None)
            self._dirty.pop(segment.start, None)
            segment.close()
            self._disk.unlink(self._paths.segment(segment.start))
            self._disk.sync_dir(self._paths.commit_log)

    # -- reading ----------------------------------------------------------------------------------

    def view(self, position: int, size: int) -> memoryview:
        """`size` bytes from `position`, inside one segment and below the readable end.

        Raises Rejected if the range is not readable.
        """
        segment = self._segments.get(position - position % self.segment_size)
        if (
            segment is None
            or size < 0
            or position < self.start
            or position + size > min(segment.end, self.readable_end)
        ):
            raise Rejected(
                f"positions {position} to {position + size} are not in the log "
                f"({self.start} to {self.readable_end})"
            )
        return segment.view(position, size)

    def view_segment(self, position: int) -> memoryview:
        """The bytes from `position` to the end of its segment or of the log, whichever is first."""
        end = position - position % self.segment_size + self.segment_size
        return self.view(position, min(end, self.readable_end) - position)

    def raw_view(self, position: int) -> memoryview | None:
        """The bytes from `position` to the end of its segment, whatever they are; None without a
        segment.

        If the log is not mapped, 32 MiB at most, which is more than any record.
        """
        segment = self._segments.get(position - position % self.segment_size)
        if segment is None:
            return None
        size = segment.end - position
        return segment.view(position, size if self.mapped else min(size, _UNMAPPED_BYTES_MAX))

    def segment_at(self, position: int) -> Segment | None:
        """The segment that holds `position`, spare ones included."""
        return self._segments.get(position - position % self.segment_size)

    def close(self) -> None:
        """Close the files; views already handed out stay readable."""
        for segment in self._segments.values():
            segment.close()
        self._segments = {}

    def _check_fault(self) -> None:
        if self._fault is not None:
            raise StoreFaulted(self._fault, hint="restart the broker; it recovers from the log")

    def _fail(self, reason: str) -> StoreFaulted:
        with self._state_lock:
            if self._fault is None:
                self._fault = reason
                note_fault(self._disk, self._paths, reason)
        return StoreFaulted(self._fault, hint="restart the broker; it recovers from the log")


def _check_segment(path: Path, start: int, size: int, segment_size: int) -> None:
    if size != segment_size or start % segment_size:
        raise ConfigError(
            f"log segment {path} has {size} bytes, but mappedFileSizeCommitLog is {segment_size}",
            hint="set the size with which this store was written",
        )


# -- a note for the next process that this store failed: kourou/last-fault ------------------------


# A process whose disk failed ends within moments and is usually restarted automatically, so
# external monitoring that polls every 15 seconds may notice neither. The file has the time in ms
# and the reason; a copy of the file has the same. It is not synced: the machine keeps running, and
# a disk that just failed is used as little as possible. If the note cannot be written or is lost,
# the fault is not reported.

_TIME_BYTES_MAX = 20


def note_fault(disk: Disk, paths: StorePaths, reason: str) -> None:
    """Write the note for the next process. Never raises OSError."""
    with suppress(OSError):
        disk.unlink(paths.last_fault)
        file = disk.open(paths.last_fault, create_size=0)
        try:
            now_ms = file.modified_ms()  # just created; the store has no other clock
            file.pwrite(f"{now_ms} {reason}\n".encode(), 0)
        finally:
            file.close()


def last_fault_ms(disk: Disk, paths: StorePaths) -> int | None:
    """When a process last failed on this store, wall clock; None if that is not known."""
    with suppress(OSError):
        file = disk.open(paths.last_fault)
        try:
            written = file.pread(_TIME_BYTES_MAX, 0).partition(b" ")[0]
        finally:
            file.close()
        return int(written) if written.isdigit() else None
    return None
