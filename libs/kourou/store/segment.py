"""One file of the commit log.

Lives here: reading and writing bytes of one segment by position in the log.
May not live here: which segments there are, where the log ends (kourou.store.commit_log).

State: log.
"""

from __future__ import annotations

from collections.abc import Iterator

from kourou.store.disk import Buffer, File

_ZEROS = bytes(64 * 1024)


class Segment:
    """`size` bytes of the log from `start` on. Written by pwrite, read by mapping or pread."""

    __slots__ = ("_file", "_mapping", "end", "size", "start")

    def __init__(self, file: File, start: int, size: int, *, mapped: bool) -> None:
        self.start = start
        self.size = size
        self.end = start + size
        self._file = file
        self._mapping: memoryview | None = file.mapped() if mapped else None

    def write(self, data: Buffer, position: int) -> None:
        """Write `data` at `position`; it must lie inside this segment."""
        assert self.start <= position <= self.end - len(data), (position, len(data))
        self._file.pwrite(data, position - self.start)

    def view(self, position: int, size: int) -> memoryview:
        """`size` bytes from `position` on; no copy when the segment is mapped."""
        at = position - self.start
        if self._mapping is not None:
            return self._mapping[at : at + size]
        return memoryview(self._file.pread(size, at))

    def next_data(self, position: int) -> int | None:
        """The first position from `position` on that may hold something else than zeros."""
        at = self._file.next_data(position - self.start)
        return None if at is None else self.start + at

    def is_zero_from(self, position: int) -> bool:
        """True if nothing but zeros lies between `position` and the end."""
        return next(self._written(position), None) is None

    def wipe(self, position: int) -> bool:
        """Turn everything from `position` to the end into zeros; True if anything was written.

        Bytes that are zero already are left alone, so reserved space stays reserved and a segment
        of a gigabyte is not written through.
        """
        wiped = False
        for at, size in self._written(position):
            self._file.pwrite(_ZEROS[:size], at)
            wiped = True
        return wiped

    def _written(self, position: int) -> Iterator[tuple[int, int]]:
        """(byte in the file, length) of the pieces from `position` on that are not all zero."""
        at = self._file.next_data(position - self.start)
        while at is not None and at < self.size:
            size = min(len(_ZEROS), self.size - at)
            if self._file.pread(size, at).strip(b"\0"):
                yield at, size
            at = self._file.next_data(at + size) if at + size < self.size else None

    def forget_cached(self) -> None:
        """Make the next reads come from the device; call it before anything is read."""
        self._file.forget_cached()

    def fdatasync(self) -> None:
        """Return when everything written to this segment survives a power loss."""
        self._file.fdatasync()

    def modified_ms(self) -> int:
        """When it was last written, wall clock; for retention only."""
        return self._file.modified_ms()

    def close(self) -> None:
        """Give the file descriptor back; views handed out stay valid."""
        self._mapping = None
        self._file.close()
