"""A segment of the log that is being fetched from another replica.

State: soft. Existing data is checked before use, and can be fetched again.

The file has a segment's length and name and is reserved on disk, so that it can be renamed into the
log. Every chunk is checked on arrival; an interrupted fetch resumes after the good records that it
finds.
"""

from __future__ import annotations

from pathlib import Path

from kourou.errors import Rejected
from kourou.store.disk import Buffer, Disk, File, as_store_error
from kourou.store.paths import StorePaths, file_name
from kourou.store.recovery.scan import good_run
from kourou.store.replica.chunks import HEAD_BYTES, check_chunk, filler_end

_READ_BYTES = 8 * 1024 * 1024


class SegmentFetch:
    """The segment at position `start`; bytes below `have` are here. One thread at a time."""

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
