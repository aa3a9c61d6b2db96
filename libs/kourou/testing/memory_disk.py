"""A disk in memory for several threads, which can fail and fill up while a broker uses it.

State: soft.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path

from kourou.testing.disk import SimDisk, SimFile, _Inode

CAPACITY_BYTES = 64 << 30
"""Too large to be filled by accident, or to be considered small by a broker."""


class MemoryDisk(SimDisk):
    """A SimDisk with serialized calls.

    While `broken`, every sync fails with EIO. While `full`, there is no free space, even after
    files are deleted. Both last until the disk is repaired.
    """

    def __init__(self, seed: int = 0, *, capacity_bytes: int = CAPACITY_BYTES) -> None:
        super().__init__(seed, capacity_bytes=capacity_bytes)
        self._mutex = threading.RLock()
        self.broken = False
        self.full = False

    def have(self, path: Path) -> None:
        """Create this directory and its parents; they survive a power loss."""
        self.make_dirs(path)
        for directory in (path, *path.parents):
            self.sync_dir(directory)

    def mend(self) -> None:
        """End both kinds of failure."""
        self.broken = self.full = False

    @property
    def ailing(self) -> bool:
        """True if it is broken or full."""
        return self.broken or self.full

    def lose_power(self) -> MemoryDisk:
        """Cut the power now; returns the disk as it is found afterwards, without faults."""
        with self._mutex:
            after = MemoryDisk(self._rng.getrandbits(64), capacity_bytes=self.capacity_bytes)
            after.take_over(self.crash())
        return after

    def take_over(self, disk: SimDisk) -> None:
        """Take over the files of another disk, which is then no longer used."""
        self._names, self._durable = disk._names, disk._durable
        self._children, self._changed = disk._children, disk._changed
        self._used = disk._used

    # -- what files and the store call ------------------------------------------------------------

    def write(self, inode: _Inode, data: bytes, at: int) -> None:
        """Write to the page cache, if there is space."""
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
        """Open for reading and writing; a missing file is created if `create_size` is given."""
        with self._mutex:
            return super().open(path, create_size=create_size, allocate=allocate)

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty if there is no such directory."""
        with self._mutex:
            return super().list_dir(path)

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its parents."""
        with self._mutex:
            super().make_dirs(path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename `source` to `target` atomically, replacing it."""
        with self._mutex:
            super().rename(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file if it exists."""
        with self._mutex:
            super().unlink(path)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with its content."""
        with self._mutex:
            super().remove_tree(path)

    def sync_dir(self, path: Path) -> None:
        """Make the names in this directory durable."""
        with self._mutex:
            super().sync_dir(path)
