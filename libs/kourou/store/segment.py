"""One file of the commit log.

State: log.
"""

from __future__ import annotations

from collections.abc import Iterator

from kourou.store.disk import Buffer, File

_ZEROS = bytes(64 * 1024)


class Segment:
    """`size` bytes of the log from `start` on. Written by pwrite, read by mapping or pread."""

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
        """`size` bytes from `position` on; no copy when the segment is mapped."""
        at = position - self.start
        mapping = self._mapping
        if mapping is not None:
            return mapping[at : at + size]
        return memoryview(self._file.pread(size, at))

    def look(self, *, from_device: bool) -> None:
        """Note where anything was written, before it is read: for a walk along what is there.

        `from_device`: forget cached pages first, as after a crash the cache may show what the disk
        never got. The notes hold until `done_looking`, whatever is written meanwhile.
        """
        if from_device:
            self._file.forget_cached()
        self._written = self._file.written_ranges()

    def done_looking(self) -> None:
        """Forget the notes: the segment is written to again."""
        self._written = None

    def next_data(self, position: int) -> int | None:
        """The first position from `position` on that may hold something else than zeros."""
        at = position - self.start
        if self._written is None:
            found = self._file.next_data(at)
        else:
            found = next((max(at, first) for first, end in self._written if end > at), None)
        return None if found is None else self.start + found

    def is_zero_from(self, position: int) -> bool:
        """True if nothing but zeros lies between `position` and the end."""
        return next(self._pieces(position), None) is None

    def wipe(self, position: int) -> bool:
        """Turn everything from `position` to the end into zeros; True if anything was written.

        Bytes that are zero already are left alone, so reserved space stays reserved and a segment
        of a gigabyte is not written through.
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
        """Return when everything written to this segment survives a power loss."""
        self._file.fdatasync()

    def modified_ms(self) -> int:
        """When it was last written, wall clock; for retention only."""
        return self._file.modified_ms()

    def close(self) -> None:
        """Give the file descriptor back; views handed out stay valid, and so does the mapping.

        A thread that found this segment before it was taken from the log may read it to the end.
        """
        self._file.close()
