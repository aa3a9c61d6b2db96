"""A disk in memory that several threads may use, broken and filled while a broker runs on it.

State: soft.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path

from kourou.testing.disk import SimDisk, SimFile, _Inode

CAPACITY_BYTES = 64 << 30
"""Nobody fills it by accident, and no broker finds it small."""


class MemoryDisk(SimDisk):
    """A SimDisk whose calls exclude each other.

    While `broken`, nothing becomes durable: every sync fails with EIO. While `full`, there is no
    free byte, whatever is deleted: somebody else takes it. `mend` ends both.
    """

    def __init__(self, seed: int = 0, *, capacity_bytes: int = CAPACITY_BYTES) -> None:
        super().__init__(seed, capacity_bytes=capacity_bytes)
        self._mutex = threading.RLock()
        self.broken = False
        self.full = False

    def have(self, path: Path) -> None:
        """Have this directory, and those above it, for long: a power loss leaves them."""
        self.make_dirs(path)
        for directory in (path, *path.parents):
            self.sync_dir(directory)

    def mend(self) -> None:
        """Working, and empty enough, again."""
        self.broken = self.full = False

    @property
    def ailing(self) -> bool:
        """Is it broken or full?"""
        return self.broken or self.full

    def lose_power(self) -> MemoryDisk:
        """Cut the power now; the disk that is found afterwards, in order again."""
        with self._mutex:
            after = MemoryDisk(self._rng.getrandbits(64), capacity_bytes=self.capacity_bytes)
            after.take_over(self.crash())
        return after

    def take_over(self, disk: SimDisk) -> None:
        """Have the files of another disk, which is not used any more."""
        self._names, self._durable = disk._names, disk._durable
        self._children, self._changed = disk._children, disk._changed
        self._used = disk._used

    # -- what files and the store call ------------------------------------------------------------

    def write(self, inode: _Inode, data: bytes, at: int) -> None:
        """Take a write into the page cache, if there is space."""
        with self._mutex:
            super().write(inode, data, at)

    def sync(self, inode: _Inode) -> None:
        """Make the pending writes durable."""
        with self._mutex:
            super().sync(inode)

    def _count_sync(self) -> None:
        if self.broken:
            self.syncs += 1
            raise OSError(errno.EIO, "Input/output error")
        super()._count_sync()

    def _take(self, space: int) -> None:
        if self.full and space:
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._take(space)

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes."""
        total, free = super().usage(path)
        return total, 0 if self.full else free

    def open(
        self, path: Path, *, create_size: int | None = None, allocate: bool = False
    ) -> SimFile:
        """Open for reading and writing, created first if missing and `create_size` is given."""
        with self._mutex:
            return super().open(path, create_size=create_size, allocate=allocate)

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty if there is no such directory."""
        with self._mutex:
            return super().list_dir(path)

    def make_dirs(self, path: Path) -> None:
        """Make a directory and its parents."""
        with self._mutex:
            super().make_dirs(path)

    def rename(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target`, atomically."""
        with self._mutex:
            super().rename(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file if it is there."""
        with self._mutex:
            super().unlink(path)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all below it."""
        with self._mutex:
            super().remove_tree(path)

    def sync_dir(self, path: Path) -> None:
        """Make the names in this directory durable."""
        with self._mutex:
            super().sync_dir(path)
