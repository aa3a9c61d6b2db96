"""What the store asks of a file system, as two small protocols.

Both implementations pass tests/contract/test_disk.py. What they promise:

    write       changes what readers of the same file see at once, and what a power loss leaves only
                after `fdatasync` of the file
    names       creating, renaming, unlinking survive a power loss after `sync_dir` of the directory
    creation    `open(create_size=n)` of a new file shows it with its full length or not at all
    errors      OSError, with ENOSPC for a full disk; FileNotFoundError where nothing is
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kourou.errors import DiskFull, KourouError, StoreFaulted

Buffer = bytes | bytearray | memoryview

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that mean: no space now, perhaps later."""


class File(Protocol):
    """An open file. Writes are whole: they return when every byte is taken, or raise."""

    def pread(self, size: int, at: int) -> bytes:
        """Up to `size` bytes from byte `at`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, at: int) -> None:
        """Write all of `data` at byte `at`, growing the file if need be."""
        ...

    def pwritev(self, pieces: Sequence[Buffer], at: int) -> None:
        """Write the pieces back to back at byte `at`."""
        ...

    def fdatasync(self) -> None:
        """Return when all that was written survives a power loss. Releases the GIL."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def next_data(self, at: int) -> int | None:
        """The first byte from `at` on that may differ from zero; None if all the rest is zero."""
        ...

    def written_ranges(self) -> list[tuple[int, int]]:
        """Where the file may differ from zero, as (first byte, end) in order.

        Ask before reading: what was read from reserved space counts as written afterwards.
        """
        ...

    def mapped(self) -> memoryview:
        """The whole file, read-only, as it is now and as it becomes; valid after close too."""
        ...

    def forget_cached(self) -> None:
        """Drop cached pages that count as clean, so that the next reads come from the device.

        After a failed fdatasync Linux shows data that the disk never got; this ends the illusion.
        Pages that are mapped or still dirty stay.
        """
        ...

    def modified_ms(self) -> int:
        """When it was last written, wall clock; for retention and never for recovery."""
        ...

    def close(self) -> None:
        """Give the file descriptor back; closing twice does nothing."""
        ...


class Lock(Protocol):
    """A lock that this process holds."""

    def release(self) -> None:
        """Let others have it."""
        ...


class Disk(Protocol):
    """A file system."""

    def open(self, path: Path, *, create_size: int | None = None, allocate: bool = False) -> File:
        """Open for reading and writing.

        `create_size` None: the file must exist. Otherwise a missing file is created with that many
        zero bytes (an existing one keeps its length): space reserved and length durable with
        `allocate`, sparse without.
        """
        ...

    def exists(self, path: Path) -> bool:
        """True if there is a file or directory."""
        ...

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty if there is no such directory."""
        ...

    def make_dirs(self, path: Path) -> None:
        """Make a directory and its parents; nothing happens if it exists."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target`, atomically."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file; nothing happens if there is none."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all below it; nothing happens if there is none."""
        ...

    def clear_dir(self, path: Path) -> None:
        """Remove all that a directory has; the directory itself, and a lock of it, stays."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Return when the names in this directory survive a power loss."""
        ...

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes of the file system that holds `path`, as far as we may use it."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock of a directory, or of a file, which is made if it is missing.

        Raises BlockingIOError if another has it.
        """
        ...


def read_whole(disk: Disk, path: Path, size_max: int) -> bytes | None:
    """The content of a small file, None if there is none; OSError(EFBIG) above `size_max` bytes."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        if size > size_max:
            raise OSError(errno.EFBIG, f"{size} bytes, at most {size_max} expected", str(path))
        return file.pread(size, 0)
    finally:
        file.close()


def write_atomically(disk: Disk, path: Path, data: Buffer) -> None:
    """Replace a small file so that a power loss leaves the old content or the new, whole.

    Written beside it as `<name>.tmp`, fsynced, renamed over it, and the directory fsynced.
    """
    beside = path.with_name(path.name + ".tmp")
    disk.unlink(beside)
    file = disk.open(beside, create_size=0)
    try:
        file.pwrite(data, 0)
        file.fdatasync()
    finally:
        file.close()
    disk.rename(beside, path)
    disk.sync_dir(path.parent)


def as_store_error(error: OSError, doing: str) -> KourouError:
    """What a failed disk operation means: DiskFull for want of space, StoreFaulted for the rest."""
    if error.errno in FULL:
        return DiskFull(f"{doing}: no space left on the disk", hint="free space; reads continue")
    return StoreFaulted(f"{doing}: {error.strerror or error}")
