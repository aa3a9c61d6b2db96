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
from typing import NamedTuple

from kourou.errors import ConfigError, Corrupt, DiskFull, Rejected
from kourou.protocol.record.columns import RecordColumns, scan
from kourou.store.disk import FULL, Buffer, Disk, as_store_error, write_atomically
from kourou.store.log.quarantine import Region, save_quarantine
from kourou.store.log.reads import Reads
from kourou.store.paths import StorePaths
from kourou.store.recovery.recover import StoreParts
from kourou.store.recovery.restart import intend_to_begin
from kourou.store.recovery.scan import damage_at, is_boundary
from kourou.store.replica.chunks import (
    LastRun,
    StoredChunk,
    check_chunk,
    read_good,
)
from kourou.store.replica.replica_files import save_epochs

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

    @property
    def uncopied(self) -> bool:
        """Whether this log, if it is a follower's, has never had all of its leader's."""
        return self._log.end == 0 or self._disk.exists(self.paths.uncopied)

    def mark_uncopied(self) -> None:
        """Store durably that a follower began with an empty log. Raises as the disk fails."""
        try:
            write_atomically(self._disk, self.paths.uncopied, b"")
        except OSError as error:
            raise as_store_error(error, f"writing {self.paths.uncopied}") from error

    def copy_completed(self) -> None:
        """Undo `mark_uncopied`, durably; nothing if that was never called."""
        try:
            if self._disk.exists(self.paths.uncopied):
                self._disk.unlink(self.paths.uncopied)
                self._disk.sync_dir(self.paths.kourou)
        except OSError as error:
            raise as_store_error(error, f"removing {self.paths.uncopied}") from error

    def restart_at(self, position: int, common: int, body: bytes) -> None:
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
