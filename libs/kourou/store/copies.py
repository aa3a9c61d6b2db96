"""The replication half of a store: what members of a group read from and write to one another.

State: log and quarantine, through their own modules.

A follower's store is written by `append_chunk` as a leader's is by `append`; everything behind
that is the same: dispatch, flush, checkpoint. So its log is its leader's, byte for byte, and its
projections are made of it by the same code.

All methods belong to the loop's thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from kourou.errors import ConfigError, Corrupt, DiskFull, Rejected
from kourou.protocol.record_batch import RecordColumns
from kourou.store.anew import intend_to_begin
from kourou.store.chunks import Chunk, LastRun, check_chunk, read_good
from kourou.store.disk import FULL, Buffer, Disk
from kourou.store.epoch_file import save_epochs
from kourou.store.fresh_appends import FreshAppends
from kourou.store.paths import StorePaths
from kourou.store.quarantine import Region, save_quarantine
from kourou.store.reads import Reads
from kourou.store.recovery import Parts
from kourou.store.replay import is_boundary
from kourou.store.segment_fetch import SegmentFetch
from kourou.store.survey import damage_at


class Copies(Reads):
    """Reads, and what members exchange."""

    def __init__(self, disk: Disk, paths: StorePaths, parts: Parts, recent_bytes: int) -> None:
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
        """Write down, durably, which epochs the log has. Raises OSError: then nothing is sure."""
        save_epochs(self._disk, self.paths, pairs)

    def begin_elsewhere(self, position: int, common: int, body: bytes) -> None:
        """Let the next start begin the log anew at `position`; see kourou.store.anew.

        What lies from `common` on is kept below `kourou/diverged`, within bounds; `body` says what
        came before `position`. Close the store now, without settling it. Raises ConfigError for a
        position where no segment begins, StoreFaulted when the disk fails.
        """
        self._log.write_out()
        try:
            intend_to_begin(self._disk, self.paths, self._log, position, common, body)
        except OSError as error:
            raise self._log.fail(f"preparing to restart the log: {error}") from error

    def _being_written(
        self, start: int, pieces: Sequence[tuple[int, Buffer]], records: RecordColumns | None
    ) -> None:
        """What is appended now need be read again neither to be projected nor to be shipped."""
        self._fresh.note(start, pieces, records)
        if len(pieces) == 1:
            position, data = pieces[0]
            self._last_read.note(position, len(data), len(data))

    # -- out of the log ---------------------------------------------------------------------------

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> Chunk:
        """Whole records from `position` on, below `limit`; see kourou.store.chunks.

        Both are boundaries. What is damaged comes in chunks of its own, which say so, and is
        remembered; such a chunk holds `max_bytes` at most. Raises Rejected for a position outside
        the log, or where no record begins.
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
        return Chunk(position, log.view(position, end - position), end, region.reason or "damaged")

    def _met_damage(self, positions: Sequence[int]) -> None:
        """Remember damage that a reader met, where other members may have good bytes of it.

        What does not begin at a record is an error of the queue's, not of the log.
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
        """Write the regions down; without room for them they are found again."""
        try:
            save_quarantine(self._disk, self.paths, self._quarantine)
        except OSError as error:
            if error.errno not in FULL:
                raise self._log.fail(f"writing {self.paths.quarantine}: {error}") from error

    # -- into the log -----------------------------------------------------------------------------

    def append_chunk(self, position: int, data: Buffer) -> int:
        """Store a leader's bytes at the end of the log; returns where the log goes on.

        Every record is checked before anything is written. `dispatch` and `flush` follow as after
        `append`. Raises Corrupt for bytes that do not belong there, Rejected if the log does not
        end at `position`, DiskFull if there is no room, StoreFaulted when the disk fails.
        """
        self._check_end(position)
        checked = check_chunk(data, position, self._log.segment_size)
        self._make_room(checked.end)
        if len(checked.records):
            self._fresh.note(position, [(position, data)], checked.records)
        self._log.append_copied(data, position, checked.end)
        return checked.end

    def append_damaged(self, position: int, data: Buffer, end: int, reason: str) -> int:
        """Store bytes that no member can read, as what they are; returns `end`.

        That they are damaged is on disk before they are. Raises as `append_chunk` does.
        """
        self._check_end(position)
        room = self._log.segment_size - position % self._log.segment_size
        if len(data) != end - position or not 0 < len(data) <= room:
            raise Corrupt(f"{len(data)} bytes do not fit between {position} and {end}")
        self._make_room(end)
        # Pieces may part inside a record, and a repair takes whole records: they are one region.
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
        """Put another member's good bytes in the place of damaged ones; returns where they end.

        They must lie in one known damaged region. The bytes are on disk first, then the units of
        the queues, and only then are they good again: a crash on the way leaves the region as it
        was. The key index stays as it is: keys that it never had come with its next rebuild.
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
        self._log.mend(data, position)
        self._dispatcher.dispatch(checked.records)
        self._queues.flush_all()
        self._quarantine.remove(position, checked.end)
        self._save_quarantine()
        return checked.end

    # -- whole segments ---------------------------------------------------------------------------

    def fetch_segment(self) -> SegmentFetch:
        """Begin, or go on, to fetch the segment that follows the log's end.

        Raises Rejected unless the log ends where a segment does, DiskFull without room for it.
        """
        self._check_end(self._log.end)
        if self._log.end % self._log.segment_size:
            raise Rejected(f"the log ends at {self._log.end}, in the middle of a segment")
        return SegmentFetch(self._disk, self.paths, self._log.end, self._log.segment_size)

    def adopt_segment(self, fetch: SegmentFetch) -> int:
        """Make a whole fetched segment the end of the log; returns where it goes on.

        `dispatch` and `flush` follow. Raises Rejected if it is not whole, or not the next one.
        """
        self._check_end(fetch.start)
        if not fetch.finished:
            raise Rejected(f"segment {fetch.start} is fetched up to {fetch.have} only")
        fetch.close()
        self._log.adopt_segment(fetch.path, fetch.start)
        return self._log.end
