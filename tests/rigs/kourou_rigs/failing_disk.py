"""The machine's disk with one ordered fault.

Only syncs of files in one folder of the store are counted, so that periodic syncs of other files do
not shift the fault. The faults are:

    fail_sync       the k-th fdatasync raises EIO, once; data written since the previous one is
                    then zero, as in file systems that drop pages they could not write
    die_after_sync  the k-th fdatasync succeeds, but the process is killed before it returns
    capacity_bytes  limits the total size of the files below `root`, whichever process wrote them

State: soft.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

from kourou.store.disk import Buffer
from kourou.store.real_disk import RealDisk, RealFile

BLOCK = 4096
_STAT_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Faults:
    """The ordered faults; 0 means never. `within` is the folder whose files are counted."""

    within: str = "commitlog"
    fail_sync: int = 0
    die_after_sync: int = 0
    capacity_bytes: int = 0


class FailingDisk(RealDisk):
    """A RealDisk with faults for files below `root`; other files are not affected."""

    __slots__ = ("_lock", "_syncs", "faults", "root")

    def __init__(self, root: Path, faults: Faults) -> None:
        self.root = root
        self.faults = faults
        self._syncs = 0
        self._lock = threading.Lock()

    def open(
        self, path: Path, *, create_size: int | None = None, allocate: bool = False
    ) -> RealFile:
        """Open or create a file, if there is space for it."""
        if create_size is not None and allocate and not path.exists():
            self.take(create_size)
        super().open(path, create_size=create_size, allocate=allocate).close()
        return FailingFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), self)

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes; of the ordered capacity if there is one."""
        capacity = self.faults.capacity_bytes
        if not capacity:
            return super().usage(path)
        return capacity, max(0, capacity - self._used())

    def take(self, size: int) -> None:
        """Raises ENOSPC if `size` more bytes exceed the capacity."""
        capacity = self.faults.capacity_bytes
        if capacity and self._used() + size > capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _used(self) -> int:
        return _STAT_BLOCK * sum(
            _blocks(Path(folder, name)) for folder, _, names in os.walk(self.root) for name in names
        )

    def counts(self, path: Path) -> bool:
        """True if syncs of this file are counted."""
        return self.faults.within in path.parts

    def fails_now(self) -> bool:
        """Count one fdatasync; returns True if it must fail."""
        with self._lock:
            self._syncs += 1
            return self._syncs == self.faults.fail_sync

    def dies_now(self) -> bool:
        """True if the process must be killed after the fdatasync just done."""
        return self._syncs == self.faults.die_after_sync


class FailingFile(RealFile):
    """A file of a FailingDisk."""

    __slots__ = ("_disk", "_unsynced")

    def __init__(self, path: Path, fd: int, disk: FailingDisk) -> None:
        super().__init__(path, fd)
        self._disk = disk
        # Recorded before the write, so that a concurrent sync never leaves a synced range recorded.
        self._unsynced: list[tuple[int, int]] = []

    def pwrite(self, data: Buffer, at: int) -> None:
        """Write all of `data` at byte `at`, if there is space."""
        self._take(at, len(data))
        self._unsynced.append((at, len(data)))
        super().pwrite(data, at)

    def fdatasync(self) -> None:
        """Sync, fail or kill the process, as ordered."""
        unsynced, self._unsynced = self._unsynced, []
        if not self._disk.counts(self._path):
            super().fdatasync()
            return
        if self._disk.fails_now():
            for at, size in unsynced:
                super().pwrite(bytes(size), at)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync()
        if self._disk.dies_now():
            os.kill(os.getpid(), signal.SIGKILL)

    def _take(self, at: int, size: int) -> None:
        """Raises ENOSPC if the bytes need new blocks that exceed the capacity."""
        if not self._disk.faults.capacity_bytes or not size:
            return
        stat = os.fstat(self._fd)
        if stat.st_blocks * _STAT_BLOCK >= stat.st_size >= at + size:
            return  # the file is fully allocated
        blocks = set(range(at // BLOCK, (at + size - 1) // BLOCK + 1))
        for first, end in self.written_ranges():
            blocks -= set(range(first // BLOCK, (end - 1) // BLOCK + 1))
        self._disk.take(BLOCK * len(blocks))


def _blocks(path: Path) -> int:
    try:
        return path.stat().st_blocks
    except FileNotFoundError:  # removed in the meantime
        return 0
