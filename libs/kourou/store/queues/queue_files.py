"""The files of one queue, seen as one long array of 20-byte units.

State: projection, see kourou.store.queues.consume_queue. Format: docs/formats/consume-queue.md.

File n holds the units of offsets [n * file_units, (n + 1) * file_units); its name is the byte
offset of its first unit. The files of a queue are consecutive, without a hole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kourou.errors import ConfigError, Corrupt
from kourou.model.limits import QUEUE_UNIT_BYTES
from kourou.protocol.kernel_python import FILLER_SIZE
from kourou.store.open_files import OpenFiles, PooledFile
from kourou.store.paths import file_name, start_of

UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("code", ">i8")])
"""A unit as stored; `code` is a tag hash, or the delivery time of a delayed message."""

Units = npt.NDArray[np.void]

WIPE_BYTES = 4_096  # one block: holes are detected block by block

UNIT_STRUCT = struct.Struct(">qiq")

assert UNIT.itemsize == QUEUE_UNIT_BYTES == UNIT_STRUCT.size


def fillers(count: int) -> bytes:
    """The bytes of `count` units that reserve offsets and refer to no record."""
    units = np.zeros(count, UNIT)
    units["size"] = FILLER_SIZE
    return units.tobytes()


class QueueFiles:
    """An array of units, split into files of `file_units` each.

    The number of the first file and the files change together, as one value, so that a reading
    thread never mistakes one file for another while old ones are deleted.
    """

    __slots__ = ("_directory", "_file_units", "_pool", "_root", "_span")

    def __init__(self, directory: Path, root: Path, pool: OpenFiles, file_units: int) -> None:
        self._directory = directory
        self._root = root
        self._pool = pool
        self._file_units = file_units
        self._span: tuple[int, tuple[PooledFile, ...]] = (0, ())

    def __len__(self) -> int:
        return len(self._span[1])

    @property
    def first(self) -> int:
        """The first offset of the first file."""
        return self._span[0] * self._file_units

    @property
    def end(self) -> int:
        """The first offset after the last file."""
        base, files = self._span
        return (base + len(files)) * self._file_units

    @property
    def file_units(self) -> int:
        """Units per file."""
        return self._file_units

    def adopt(self, names: Sequence[str]) -> list[int]:
        """Adopt the files found on disk, given their sorted names.

        Returns the first offsets of the files after a missing one; they are not adopted. Raises
        ConfigError if the files were written with another length: then they are sound and must not
        be changed.
        """
        size = self._file_units * QUEUE_UNIT_BYTES
        files: list[PooledFile] = []
        first = 0
        stray: list[int] = []
        for name in names:
            start = start_of(name)
            if start is None:
                continue  # not a queue file: an editor's or an operator's copy
            number, rest = divmod(start, size)
            file = self._file(number)
            if rest or self._pool.length(file) != size:
                raise ConfigError(
                    f"{self._directory / name} does not fit files of {size} bytes",
                    hint="mappedFileSizeConsumeQueue must be what the store was written with",
                )
            if not files:
                first = number
            if number == first + len(files):
                files.append(file)
            else:
                stray.append(number * self._file_units)
        self._span = (first, tuple(files))
        return stray

    def remove_stray(self, offset: int) -> None:
        """Remove a file that `adopt` did not take over."""
        self._pool.remove(self._file(offset // self._file_units))

    def stray_unit(self, offset: int) -> tuple[int, int, int]:
        """(position, size, code) of the first unit of such a file."""
        file = self._file(offset // self._file_units)
        position, size, code = UNIT_STRUCT.unpack(self._pool.read(file, QUEUE_UNIT_BYTES, 0))
        return position, size, code

    def start(self, offset: int) -> None:
        """Start an empty array in the file that holds `offset`; that file is not created yet."""
        assert not self._span[1]
        self._pool.make_dirs(self._directory, self._root)
        self._span = (offset // self._file_units, ())

    def unit(self, offset: int) -> tuple[int, int, int]:
        """(position, size, code) of one unit; faster than `read` for a single unit."""
        number, unit = divmod(offset, self._file_units)
        base, files = self._span
        data = self._pool.read(files[number - base], QUEUE_UNIT_BYTES, unit * QUEUE_UNIT_BYTES)
        position, size, code = UNIT_STRUCT.unpack(data)
        return position, size, code

    def read(self, offset: int, end: int) -> Units:
        """The units [offset, end), read-only; all of them must lie within the files."""
        return np.frombuffer(self.read_bytes(offset, end), UNIT)

    def read_bytes(self, offset: int, end: int) -> bytes:
        """The bytes of the units [offset, end); all of them must lie within the files."""
        if end <= offset:
            return b""
        parts = [
            self._pool.read(file, (last - first) * QUEUE_UNIT_BYTES, at)
            for file, first, last, at in self._pieces(offset, end)
        ]
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if len(data) != (end - offset) * QUEUE_UNIT_BYTES:
            raise Corrupt(
                f"{self._directory}: a file became shorter than it was",
                hint="delete the consumequeue directory; it is rebuilt from the log",
            )
        return data

    def write(self, offset: int, data: bytes) -> None:
        """Write whole units from `offset` on, in new files if necessary. Raises OSError."""
        number, unit = divmod(offset, self._file_units)
        base, files = self._span
        at = unit * QUEUE_UNIT_BYTES
        if number - base < len(files) and at + len(data) <= self._file_units * QUEUE_UNIT_BYTES:
            self._pool.write(files[number - base], data, at)
            return
        end = offset + len(data) // QUEUE_UNIT_BYTES
        last_number = (end - 1) // self._file_units
        added = tuple(self._file(new) for new in range(base + len(files), last_number + 1))
        self._span = (base, files + added)
        view = memoryview(data)
        for file, first, last, at in self._pieces(offset, end):
            start = (first - offset) * QUEUE_UNIT_BYTES
            self._pool.write(file, view[start : start + (last - first) * QUEUE_UNIT_BYTES], at)

    def _pieces(self, offset: int, end: int) -> Iterator[tuple[PooledFile, int, int, int]]:
        """(file, first offset, end offset, byte in it) of each file that overlaps [offset, end)."""
        base, files = self._span
        while offset < end:
            number, unit = divmod(offset, self._file_units)
            if number < base:
                raise FileNotFoundError(f"{self._directory}: offset {offset} is expired")
            last = min(end, (number + 1) * self._file_units)
            yield files[number - base], offset, last, unit * QUEUE_UNIT_BYTES
            offset = last

    def _file(self, number: int) -> PooledFile:
        size = self._file_units * QUEUE_UNIT_BYTES
        return PooledFile(self._directory / file_name(number * size), size)

    def cut(self, end: int) -> None:
        """Remove the files from offset `end` on; in the file before, zero everything above it."""
        base, files = self._span
        keep = max(0, -(-end // self._file_units) - base)
        self._span = (base, files[:keep])
        for file in files[keep:]:
            self._pool.remove(file)
        if keep and end < self.end:
            self._wipe(files[keep - 1], (end % self._file_units) * QUEUE_UNIT_BYTES)

    def _wipe(self, file: PooledFile, at: int) -> None:
        """Zero every non-zero byte from byte `at` of a file on."""
        while at < file.size and (data_at := self._pool.next_data(file, at)) is not None:
            data = self._pool.read(file, min(WIPE_BYTES, file.size - data_at), data_at)
            if not data:
                return
            if data.count(0) != len(data):
                self._pool.write(file, bytes(len(data)), data_at)
            at = data_at + len(data)

    def detach_first(self) -> PooledFile:
        """Detach the oldest file and return it; it stays on disk until the pool removes it."""
        base, files = self._span
        self._span = (base + 1, files[1:])
        return files[0]

    def remove_all(self) -> None:
        """Remove every file."""
        _, files = self._span
        self._span = (0, ())
        for file in files:
            self._pool.remove(file)
