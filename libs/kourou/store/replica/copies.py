"""The replication half of a store: what replicas read from and write to one another.

State: log and quarantine, through their own modules.

`append_chunk` writes a follower's store as `append` writes a leader's; dispatch, flush and
checkpoint are the same. So a follower's log equals its leader's byte for byte, and the same code
derives its projections.

All methods run in the event loop's thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kourou.errors import ConfigError, Corrupt, DiskFull, Rejected
from kourou.protocol.record.columns import RecordColumns, scan
from kourou.store.disk import FULL, Buffer, Disk, File, as_store_error
from kourou.store.log.quarantine import Region, save_quarantine
from kourou.store.log.reads import Reads
from kourou.store.paths import StorePaths, file_name
from kourou.store.recovery.recover import StoreParts
from kourou.store.recovery.replay import is_boundary
from kourou.store.recovery.restart import intend_to_begin
from kourou.store.recovery.scan import damage_at, good_run
from kourou.store.replica.chunks import (
    HEAD_BYTES,
    LastRun,
    StoredChunk,
    check_chunk,
    filler_end,
    read_good,
)
from kourou.store.replica.epoch_file import save_epochs

_READ_BYTES = 8 * 1024 * 1024


class SegmentFetch:
    """A segment of the log, at position `start`, that is being fetched from another replica.

    State: soft; existing data is checked before use, and can be fetched again. Bytes below `have`
    are here. The file has a segment's length and name and is reserved on disk, so that it can be
    renamed into the log. Every chunk is checked on arrival; an interrupted fetch resumes after the
    good records that it finds. One thread at a time.
    """

    def __init__(self, disk: Disk, paths: StorePaths, start: int, segment_size: int) -> None:
        """Raises DiskFull if there is no room for it, StoreFaulted if the disk fails."""
        assert not start % segment_size, start
        self.start = start
        self.end = start + segment_size
        self.have = start
        self.finished = False
        self.path = paths.incoming / file_name(start)
        self._size = segment_size
        try:
            self._file = _open(disk, paths, self.path, segment_size)
            self._look()
        except OSError as error:
            raise as_store_error(error, f"opening {self.path}") from error

    def write(self, position: int, data: Buffer) -> int:
        """Write the chunk that starts at `have`; returns the new value of `have`.

        Raises Corrupt for bytes that do not belong there, Rejected if they do not follow, DiskFull
        or StoreFaulted if the write fails.
        """
        if position != self.have:
            raise Rejected(f"segment {self.start} is here up to {self.have}, not {position}")
        checked = check_chunk(data, position, self._size)
        try:
            self._file.pwrite(data, position - self.start)
        except OSError as error:
            raise as_store_error(error, f"writing {self.path}") from error
        self.have = checked.end
        return self.have

    def finish(self) -> None:
        """Make the segment durable. Raises Rejected if it is not complete, StoreFaulted."""
        if self.have != self.end:
            raise Rejected(f"segment {self.start} is here up to {self.have}, not {self.end}")
        try:
            self._file.fdatasync()
        except OSError as error:
            raise as_store_error(error, f"flushing {self.path}") from error
        self.finished = True

    def close(self) -> None:
        """Close the file; it stays on disk."""
        self._file.close()

    def _look(self) -> None:
        """Find how much an earlier fetch left."""
        while self.have < self.end:
            at = self.have - self.start
            view = memoryview(self._file.pread(min(_READ_BYTES, self._size - at), at))
            run = good_run(view, self.have)
            if len(run):
                self.have += int(run.sizes.sum())
                continue
            self.have = filler_end(view[:HEAD_BYTES], self.have, self._size) or self.have
            return


def _open(disk: Disk, paths: StorePaths, path: Path, size: int) -> File:
    """The file with all its space reserved; files of other fetches are removed. Raises OSError."""
    if not disk.exists(paths.incoming):
        disk.make_dirs(paths.incoming)
        disk.sync_dir(paths.kourou)
    for name in disk.list_dir(paths.incoming):
        if name != path.name:
            disk.unlink(paths.incoming / name)
    file = disk.open(path, create_size=size, allocate=True)
    if file.size() == size:
        return file
    file.close()
    disk.unlink(path)
    return disk.open(path, create_size=size, allocate=True)


_PIECES_MAX = 1_024
_JOINED_BYTES_MAX = 1 << 20
"""Up to this size pieces are copied into one: the copy is cheaper than separate projections."""


class RecentRecords(NamedTuple):
    """Records in one piece, with nothing else between the log position `start` and them.

    `end` is the position after the last one.
    """

    start: int
    records: RecordColumns
    data: Buffer
    end: int


class FreshAppends:
    """Records appended a moment ago and not projected yet, kept in memory, in log order.

    State: soft. Records that are not here, or do not directly follow what was projected last, are
    read from the log. Used by one thread.
    """

    def __init__(self) -> None:
        self._pieces: list[RecentRecords] = []

    def note(
        self, start: int, pieces: Sequence[tuple[int, Buffer]], records: RecordColumns | None
    ) -> None:
        """These pieces are being written at the log's end, which was `start`.

        `records`: the columns of the single piece, if they are known.
        """
        if len(pieces) == 1 and len(self._pieces) < _PIECES_MAX:
            position, data = pieces[0]
            self._pieces.append(
                RecentRecords(start, records or scan(data), data, position + len(data))
            )

    def take(self) -> Iterator[RecentRecords]:
        """Remove and yield all pieces; adjacent ones are joined."""
        pieces, self._pieces = self._pieces, []
        return _in_few(pieces)


def _in_few(pieces: Sequence[RecentRecords]) -> Iterator[RecentRecords]:
    group: list[RecentRecords] = []
    size = 0
    for piece in pieces:
        length = len(piece.data)
        if group and (piece.start != group[-1].end or size + length > _JOINED_BYTES_MAX):
            yield _joined(group)
            group, size = [], 0
        group.append(piece)
        size += length
    if group:
        yield _joined(group)


def _joined(pieces: Sequence[RecentRecords]) -> RecentRecords:
    """Join adjacent pieces into one."""
    if len(pieces) == 1:
        return pieces[0]
    data = b"".join([piece.data for piece in pieces])
    return RecentRecords(pieces[0].start, scan(data), data, pieces[-1].end)


class Copies(Reads):
    """Adds to `Reads` what replicas exchange."""

    def __init__(self, disk: Disk, paths: StorePaths, parts: StoreParts, recent_bytes: int) -> None:
        super().__init__(parts.log, parts.queues, parts.index, parts.quarantine, recent_bytes)
        self.paths = paths
        self._disk = disk
        self._parts = parts
        self._dispatcher = parts.dispatcher
        self._fresh = FreshAppends()
        self._last_read = LastRun()

    @property
    def damaged_regions(self) -> list[Region]:
        """Regions of the log without readable records."""
        return self._quarantine.regions

    def save_epochs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Replace, durably, the list of the log's epochs.

        Raises OSError: then the file's state is undefined.
        """
        save_epochs(self._disk, self.paths, pairs)

    def begin_elsewhere(self, position: int, common: int, body: bytes) -> None:
        """Prepare for a log that restarts at `position` at the next start; see `restart_log`.

        The data from `common` on is kept below `kourou/diverged`, within bounds; `body` describes
        what preceded `position`. The caller must then close the store without completing pending
        work. Raises ConfigError if no segment begins at the position, StoreFaulted if the disk
        fails.
        """
        self._log.write_out()
        try:
            intend_to_begin(self._disk, self.paths, self._log, position, common, body)
        except OSError as error:
            raise self._log.fail(f"preparing to restart the log: {error}") from error

    def _being_written(
        self, start: int, pieces: Sequence[tuple[int, Buffer]], records: RecordColumns | None
    ) -> None:
        """Remember what is appended, so that dispatch and replication need not read it again."""
        self._fresh.note(start, pieces, records)
        if len(pieces) == 1:
            position, data = pieces[0]
            self._last_read.note(position, len(data), len(data))

    # -- out of the log ---------------------------------------------------------------------------

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> StoredChunk:
        """Whole records from `position` on, below `limit`; see kourou.store.replica.chunks.

        Both must be record boundaries. Damaged data is returned in separate chunks, which say so
        and hold `max_bytes` at most; the damage is recorded in the quarantine. Raises Rejected for
        a position outside the log, or where no record begins.
        """
        chunk = read_good(self._log, self._quarantine, position, limit, max_bytes, self._last_read)
        if chunk is not None:
            return chunk
        log, limit = self._log, min(limit, self._log.readable_end)
        if not log.start <= position < limit:
            raise Rejected(f"position {position} is not in the log ({log.start} to {limit})")
        region = self._quarantine.at(position) or self._find_damage(position, limit)
        segment_end = position - position % log.segment_size + log.segment_size
        end = min(region.end, limit, segment_end, position + max_bytes)
        return StoredChunk(
            position, log.view(position, end - position), end, region.reason or "damaged"
        )

    def _met_damage(self, positions: Sequence[int]) -> None:
        """Record damage that a reader found, because other replicas may have good bytes for it.

        A position where no record begins is an error in the queue, not damage in the log.
        """
        for position in positions if self._parts.replicated else ():
            inside = self._log.start <= position < self._log.readable_end
            if inside and self._quarantine.at(position) is None:
                with contextlib.suppress(Rejected):
                    self._find_damage(position, self._log.readable_end)

    def _find_damage(self, position: int, limit: int) -> Region:
        if not is_boundary(self._log, self._quarantine, position):
            raise Rejected(f"no record begins at position {position}")
        region = damage_at(self._log, self._quarantine, position, limit)
        self._quarantine.add([region])
        self.corrupt_met += 1
        self._save_quarantine()
        return region

    def _save_quarantine(self) -> None:
        """Write the regions to disk; if the disk is full, they are found again later."""
        try:
            save_quarantine(self._disk, self.paths, self._quarantine)
        except OSError as error:
            if error.errno not in FULL:
                raise self._log.fail(f"writing {self.paths.quarantine}: {error}") from error

    # -- into the log -----------------------------------------------------------------------------

    def append_chunk(self, position: int, data: Buffer) -> int:
        """Append a leader's bytes to the log; returns the position where the log continues.

        Every record is checked before anything is written. `dispatch` and `flush` follow as after
        `append`. Raises Corrupt for bytes that do not belong there, Rejected if the log does not
        end at `position`, DiskFull if there is no room, StoreFaulted if the disk fails.
        """
        self._check_end(position)
        checked = check_chunk(data, position, self._log.segment_size)
        self._make_room(checked.end)
        if len(checked.records):
            self._fresh.note(position, [(position, data)], checked.records)
        self._log.append_copied(data, position, checked.end)
        return checked.end

    def append_damaged(self, position: int, data: Buffer, end: int, reason: str) -> int:
        """Append bytes that no replica can read, marked as damaged; returns `end`.

        The quarantine is on disk before the bytes are. Raises as `append_chunk` does.
        """
        self._check_end(position)
        room = self._log.segment_size - position % self._log.segment_size
        if len(data) != end - position or not 0 < len(data) <= room:
            raise Corrupt(f"{len(data)} bytes do not fit between {position} and {end}")
        self._make_room(end)
        # Chunks may end inside a record, and a repair needs whole records: keep them one region.
        before = self._quarantine.at(position - 1) if room < self._log.segment_size else None
        self._quarantine.add([Region(before.start if before else position, end, reason)])
        self._save_quarantine()
        self._log.append_copied(data, position, end)
        return end

    def _check_end(self, position: int) -> None:
        log = self._log
        if log.staged:
            raise ConfigError(
                "a follower cannot stage its log in memory",
                hint="set transientStorePoolEnable=false on every broker that can become a "
                "follower",
            )
        if position != log.end:
            raise Rejected(f"the log ends at {log.end}; bytes at {position} do not follow")

    def _make_room(self, end: int) -> None:
        while self._log.allocated_end < end:
            self._log.allocate_next()

    # -- repair -----------------------------------------------------------------------------------

    def repair(self, position: int, data: Buffer) -> int:
        """Replace damaged bytes with another replica's good ones; returns the end of those.

        They must lie in one known damaged region. The bytes are synced first, then the units of the
        queues; only then does the region leave the quarantine, so a crash in between leaves the
        region as it was. The key index does not change: missing keys are added by its next rebuild.
        Raises Corrupt if these bytes are not good either, Rejected if nothing is damaged there.
        """
        checked = check_chunk(data, position, self._log.segment_size)
        region = self._quarantine.at(position)
        if region is None or checked.end > region.end or checked.end == position:
            raise Rejected(f"no damaged region between {position} and {checked.end}")
        if self._dispatcher.end < checked.end:
            raise DiskFull(
                "the queues lag behind the log; the repair is retried when they have caught up"
            )
        self._log.overwrite_damaged(data, position)
        self._dispatcher.dispatch(checked.records)
        self._queues.flush_all()
        self._quarantine.remove(position, checked.end)
        self._save_quarantine()
        return checked.end

    # -- whole segments ---------------------------------------------------------------------------

    def fetch_segment(self) -> SegmentFetch:
        """Start or resume fetching the segment that follows the end of the log.

        Raises Rejected unless the log ends at the end of a segment, DiskFull if there is no room
        for it.
        """
        self._check_end(self._log.end)
        if self._log.end % self._log.segment_size:
            raise Rejected(f"the log ends at {self._log.end}, in the middle of a segment")
        return SegmentFetch(self._disk, self.paths, self._log.end, self._log.segment_size)

    def adopt_segment(self, fetch: SegmentFetch) -> int:
        """Append a completely fetched segment to the log; returns the position where the log
        continues.

        `dispatch` and `flush` follow. Raises Rejected if it is not complete, or not the next one.
        """
        self._check_end(fetch.start)
        if not fetch.finished:
            raise Rejected(f"segment {fetch.start} is fetched up to {fetch.have} only")
        fetch.close()
        self._log.adopt_segment(fetch.path, fetch.start)
        return self._log.end
