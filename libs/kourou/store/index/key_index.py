"""Maps a key to the messages that have it: the sequence of index files.

State: projection. It can be deleted and is rebuilt from the commit log, byte for byte.

Invariants:  covered <= seen: every key of the records below `covered` is in a file
             flushed <= covered: those below `flushed` survive a power loss
             file names ascend, and so do the positions in them

No other operation waits for the index or fails because of it. If an entry cannot be written, or
while the index is held, it falls BEHIND: `covered` does not advance, and live keys are counted and
left out. It becomes CURRENT again when a caller reads the log from `covered` on and passes the
records again.

One thread adds and truncates; any thread may search, and any thread may flush.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

import numpy as np

from kourou.errors import ConfigError
from kourou.model.limits import (
    INDEX_CHAIN_STEPS_MAX,
    INDEX_ENTRIES,
    INDEX_SLOT_BYTES,
    INDEX_SLOTS,
)
from kourou.store.disk import Disk, as_store_error
from kourou.store.index.index_file import IndexFile, IndexHeader, Int32s, Int64s, file_size
from kourou.store.open_files import OpenFiles, PooledFile

OPEN_INDEX_FILES_MAX = 64

FLUSH_SHARE = 12
"""A flush is due after so many bytes of log for each byte of slots in a file, 240 MB by default.

Keys are spread over all slots, so a flush writes most of them. A restart after a crash indexes
again what was not flushed.
"""

_NAME_DIGITS = 17
_NAME_FORMAT = "%Y%m%d%H%M%S"


class IndexState(StrEnum):
    """Whether the index has every key of the log."""

    CURRENT = "current"
    BEHIND = "behind"


class KeyIndex:
    """All index files of a store, oldest first."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        slot_count: int = INDEX_SLOTS,
        entry_count: int = INDEX_ENTRIES,
    ) -> None:
        assert slot_count >= 1, slot_count
        assert entry_count >= 2, entry_count
        self._disk = disk
        self._directory = directory
        self._slot_count = slot_count
        self._entry_count = entry_count
        self._flush_bytes = FLUSH_SHARE * slot_count * INDEX_SLOT_BYTES
        self._pool = OpenFiles(disk, OPEN_INDEX_FILES_MAX)
        self._files: tuple[IndexFile, ...] = ()
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self.covered = 0
        self.seen = 0
        self.flushed = 0
        self.keys_put = 0
        self.keys_left_out = 0
        self.write_failures = 0
        self.last_failure = ""
        self.held = False

    @property
    def state(self) -> IndexState:
        """CURRENT if every record passed to it is indexed."""
        return IndexState.CURRENT if self.covered >= self.seen else IndexState.BEHIND

    @property
    def entry_total(self) -> int:
        """Entries in all files."""
        return sum(file.entries for file in self._files)

    @property
    def end_position(self) -> int:
        """The position of the last record that has an entry; 0 if there are no entries."""
        return self._files[-1].header.end_position if self._files else 0

    @property
    def full_end_ms(self) -> int:
        """Store time (ms) of the last entry of the newest full file, 0 if none: for checkpoints."""
        for file in reversed(self._files):
            if not file.room:
                return file.header.end_ms
        return 0

    # -- loading ----------------------------------------------------------------------------------

    def load(self, *, covered: int, clean: bool) -> list[str]:
        """Adopt the files found on disk; returns what is wrong, one sentence per file.

        `covered`: all records below this log position were indexed and flushed; the caller passes
        later ones again. `clean`: the files were closed, so their slots need no check. A damaged
        file is removed together with the newer ones: then the caller must pass the log again from
        the value of `covered` after this call.
        """
        problems: list[str] = []
        files: list[IndexFile] = []
        unflushed = ""
        size = file_size(self._slot_count, self._entry_count)
        for name in self._disk.list_dir(self._directory):
            if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdecimal()):
                continue
            file = self._file(name, IndexHeader())
            if self._pool.length(file.file) != size:
                raise ConfigError(
                    f"{file.file.path} is not {size} bytes long",
                    hint="maxHashSlotNum and maxIndexNum must be what the store was written with",
                )
            problem = file.read_header()
            if not problem and file.entries and files and files[-1].room:
                problem = f"{file.file.path} follows a file that is not full"
            if not problem and file.entries and unflushed:
                # A power loss kept this header and lost the one before: keys are missing there.
                problem = f"{file.file.path} follows {unflushed}, which was never flushed"
            if problem:
                problems.append(problem)
            elif not file.entries:
                unflushed = unflushed or name
            elif file.entries and not problems:  # else: after a damaged one, or never flushed
                files.append(file)
                continue
            self._pool.remove(file.file)
        if files and not clean and (problem := files[-1].recover()):
            problems.append(problem)
            self._pool.remove(files.pop().file)
        self._files = tuple(files)
        if problems:
            covered = min(covered, self.end_position)
        self.covered = self.seen = self.flushed = covered
        return problems

    def wipe(self) -> None:
        """Delete every file, to rebuild them from the log."""
        with self._flushing, self._lock:
            self._files = ()
            self._pool.close()
            self._pool = OpenFiles(self._disk, OPEN_INDEX_FILES_MAX)
            self._disk.clear_dir(self._directory)
            self._disk.sync_dir(self._directory)
            self.covered = self.seen = self.flushed = 0

    def _file(self, name: str, header: IndexHeader) -> IndexFile:
        size = file_size(self._slot_count, self._entry_count)
        file = PooledFile(self._directory / name, size)
        return IndexFile(file, self._pool, self._slot_count, self._entry_count, header)

    def _remove_last(self) -> None:
        last = self._files[-1]
        self._files = self._files[:-1]
        self._pool.remove(last.file)

    # -- adding -----------------------------------------------------------------------------------

    def put_many(
        self,
        hashes: Int32s,
        positions: Int64s,
        store_ms: Int64s,
        *,
        start: int,
        end: int,
    ) -> None:
        """Index the keys of the records in [start, end) of the log, in log order.

        Parallel columns, one element per key: its hash (not negative), its record's position and
        store time. Records that are indexed already are skipped, so the same call may be repeated.
        Never raises because of the disk: see `state`.
        """
        with self._lock:
            self.seen = max(self.seen, end)
            if start > self.covered or self.held:
                self.keys_left_out += len(hashes)
                return
            if end <= self.covered:
                return
            try:
                if len(hashes):
                    self._put(hashes, positions, store_ms)
            except OSError as error:
                self.write_failures += 1
                self.keys_left_out += len(hashes)
                self.last_failure = str(as_store_error(error, "key index"))
                return
            self.covered = end

    def _put(
        self,
        hashes: Int32s,
        positions: Int64s,
        store_ms: Int64s,
    ) -> None:
        known = 0
        if self._files and int(positions[0]) <= self.end_position:
            known = self._known(positions)
        while known < len(hashes):
            file = self._files[-1] if self._files else None
            if file is None or not file.room:
                file = self._begin_file(int(store_ms[known]))
            end = min(len(hashes), known + file.room)
            file.put(hashes[known:end], positions[known:end], store_ms[known:end])
            self.keys_put += end - known
            known = end

    def _known(self, positions: Int64s) -> int:
        """How many of these keys have entries: all below the end, and some of those at it."""
        end = self.end_position
        below = int(np.searchsorted(positions, end, side="left"))
        at = int(np.searchsorted(positions, end, side="right")) - below
        if at:
            at_end = 0
            for file in reversed(self._files):
                here = file.entries_at_end() if file.header.end_position == end else 0
                at_end += here
                if here < file.entries:
                    break
            at = min(at, at_end)
        return below + at

    def _begin_file(self, store_ms: int) -> IndexFile:
        last = self._files[-1] if self._files else None
        name = index_file_name(store_ms, last.file.path.name if last else "")
        file = self._file(name, last.header.successor() if last else IndexHeader())
        self._pool.write(file.file, b"\0", 0)  # creates it at full length
        self._files = (*self._files, file)
        return file

    # -- searching --------------------------------------------------------------------------------

    def find(self, key_hash: int, *, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Positions of records that may have the key and be stored in [begin, end], newest first.

        They are found one by one as the caller iterates: it verifies key and time, and knows when
        it has enough. At most INDEX_CHAIN_STEPS_MAX entries are examined, so that keys that share a
        slot cannot make a query run without limit.
        """
        last = -1
        for position in self._walk(key_hash, begin_ms, end_ms):
            if position != last:  # once, even if the message has the key twice
                last = position
                yield position

    def _walk(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        steps_left = INDEX_CHAIN_STEPS_MAX
        for file in reversed(self._files):
            header = file.header
            if header.begin_ms <= end_ms and header.end_ms >= begin_ms:
                steps_left -= yield from file.find(key_hash, begin_ms, end_ms, steps_left)
            if header.begin_ms < begin_ms or steps_left <= 0:
                break

    # -- truncating -------------------------------------------------------------------------------

    def truncate(self, position: int, store_ms_of: Callable[[int], int]) -> None:
        """Remove the keys of records at or above `position`.

        `store_ms_of` returns the store time in ms of the record at a position below it.
        """
        with self._flushing, self._lock:
            while self._files and self._files[-1].header.begin_position >= position:
                self._remove_last()
            if self._files and self._files[-1].header.end_position >= position:
                self._files[-1].cut(position, store_ms_of)
            self.covered = min(self.covered, position)
            self.seen = min(self.seen, position)
            self.flushed = min(self.flushed, position)

    def detach_before(self, log_start: int) -> list[PooledFile]:
        """Detach files with records below `log_start` only, except the last file; returns them.

        They stay on disk until `remove_detached`, so that a checkpoint can first record that their
        entries are gone.
        """
        with self._lock:
            count = 0
            while (
                count < len(self._files) - 1 and self._files[count].header.end_position < log_start
            ):
                count += 1
            detached = [file.file for file in self._files[:count]]
            self._files = self._files[count:]
            return detached

    def remove_detached(self, file: PooledFile) -> None:
        """Remove a detached file of the index, durably; callable from any thread."""
        self._pool.remove(file)
        self._disk.sync_dir(self._directory)

    def hold(self, held: bool) -> None:
        """While held, the index accepts no entries: on a full disk, other data needs the space
        more.
        """
        self.held = held

    # -- flushing ---------------------------------------------------------------------------------

    @property
    def flush_due(self) -> bool:
        """Whether enough of the log is indexed and not flushed, or a full file is not flushed."""
        return self.covered - self.flushed >= self._flush_bytes or any(
            file.dirty and not file.room for file in self._files
        )

    def flush(self) -> int:
        """Make everything covered durable; returns the number of files written.

        Thread-safe. On a full disk `flushed` does not advance and a write failure is counted; any
        other fsync failure is permanent (StoreFaulted).
        """
        with self._flushing:
            with self._lock:
                covered = self.covered
                taken = [
                    (file, file.header, file.take_dirty_slots())
                    for file in self._files
                    if file.dirty
                ]
                for file, _, _ in taken:
                    file.dirty = False
            try:
                for file, _, slots in taken:
                    for at, data in slots:
                        self._write(file, data, at)
                self._pool.flush()
                for file, header, _ in taken:
                    self._write(file, header.encode(), 0)
            except OSError as error:
                with self._lock:
                    for file, _, slots in taken:
                        file.give_back_dirty_slots(slots)
                self.write_failures += 1
                self.last_failure = str(as_store_error(error, "flush of the key index"))
                return 0
            self._pool.flush()
            with self._lock:
                for file in self._files[:-1]:
                    if not file.dirty:
                        file.drop_slots()
            self.flushed = covered
            return len(taken)

    def _write(self, file: IndexFile, data: bytes, at: int) -> None:
        """Write, unless the file was deleted by age in the meantime."""
        try:
            self._pool.write(file.file, data, at)
        except FileNotFoundError:
            if not file.file.removed:
                raise

    def close(self) -> None:
        """Close every file; nothing is flushed."""
        self._pool.close()

    def statistics(self) -> dict[str, int | str]:
        """A snapshot for operators and metrics."""
        return {
            "state": self.state.value,
            "files": len(self._files),
            "entries": self.entry_total,
            "behind_bytes": max(0, self.seen - self.covered),
            "keys_put": self.keys_put,
            "keys_left_out": self.keys_left_out,
            "write_failures": self.write_failures,
            "last_failure": self.last_failure,
        }


def index_file_name(store_ms: int, newest: str) -> str:
    """The name of a file whose first entry has this store time, in local time (yyyyMMddHHmmssSSS).

    Names must ascend, because RocketMQ sorts by them: if the clock or daylight saving time went
    back, the name is the newest one so far plus a millisecond. The same records always give the
    same names.
    """
    seconds, millis = divmod(store_ms, 1000)
    name = time.strftime(_NAME_FORMAT, time.localtime(seconds)) + f"{millis:03d}"
    if name > newest:
        return name
    wall = datetime.strptime(newest[:-3], _NAME_FORMAT)  # noqa: DTZ007 - a reading, not an instant
    wall += timedelta(milliseconds=int(newest[-3:]) + 1)
    return wall.strftime(_NAME_FORMAT) + f"{wall.microsecond // 1000:03d}"
