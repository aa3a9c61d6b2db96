"""One file of the commit log.

State: log.
"""

from __future__ import annotations

from collections.abc import Iterator

from kourou.store.disk import Buffer, File

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
