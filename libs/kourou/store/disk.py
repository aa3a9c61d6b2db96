"""The interface between the store and the file system, as two small protocols.

Both implementations pass tests/contract/test_disk.py. They guarantee:
    write       readers of the same file see a write at once; it survives a power loss only after
                `fdatasync` of the file
    names       creating, renaming, unlinking survive a power loss after `sync_dir` of the directory
    creation    `open(create_size=n)` makes a new file visible with its full length or not at all
    errors      OSError, with ENOSPC for a full disk; FileNotFoundError for a missing file
    links       the machine's own file system has them: LinkRefused for one in the place of a file
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Protocol

from kourou.errors import ConfigError, DiskFull, KourouError, StoreFaulted

Buffer = bytes | bytearray | memoryview

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that mean: no space now, perhaps later."""


class File(Protocol):
    """An open file. Writes are complete: they return once every byte is written, or raise."""

    def pread(self, size: int, at: int) -> bytes:
        """Up to `size` bytes from byte `at`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, at: int) -> None:
        """Write all of `data` at byte `at`; the file grows if necessary."""
        ...

    def fdatasync(self) -> None:
        """Return once everything written survives a power loss. Releases the GIL."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def next_data(self, at: int) -> int | None:
        """The first byte from `at` on that may differ from zero; None if the rest is all zero."""
        ...

    def written_ranges(self) -> list[tuple[int, int]]:
        """The ranges that may differ from zero, as (first byte, end) in order.

        Call it before reading: reserved space counts as written once it was read.
        """
        ...

    def mapped(self) -> memoryview:
        """The whole file, read-only, reflecting later writes; valid after close too."""
        ...

    def forget_cached(self) -> None:
        """Drop clean cached pages, so that the next reads come from the device.

        After a failed fdatasync Linux still shows data that never reached the disk; this prevents
        that. Pages that are mapped or still dirty stay.
        """
        ...

    def modified_ms(self) -> int:
        """The time of the last write, wall clock; for retention, never for recovery."""
        ...

    def close(self) -> None:
        """Close the file descriptor; closing twice does nothing."""
        ...


class DiskLock(Protocol):
    """A lock that this process holds."""

    def release(self) -> None:
        """Release the lock."""
        ...


class Disk(Protocol):
    """A file system."""

    def open(self, path: Path, *, create_size: int | None = None, allocate: bool = False) -> File:
        """Open for reading and writing.

        `create_size` None: the file must exist. Otherwise a missing file is created with that many
        zero bytes (an existing one keeps its length): with `allocate`, the space is reserved and
        the length durable; without, the file is sparse.
        """
        ...

    @property
    def boot_id(self) -> str:
        """Another text after each power loss; "" if the machine does not tell."""
        ...

    def exists(self, path: Path) -> bool:
        """True if there is a file or directory."""
        ...

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty if there is no such directory."""
        ...

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its parents; does nothing if it exists."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` with `source`, atomically."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file; does nothing if there is none."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and everything below it; does nothing if there is none."""
        ...

    def clear_dir(self, path: Path) -> None:
        """Remove the contents of a directory; the directory itself, and a lock on it, stay."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Return once the names in this directory survive a power loss."""
        ...

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes of the file system that holds `path`, as far as we may use it."""
        ...

    def lock(self, path: Path) -> DiskLock:
        """Take the exclusive lock of a directory, or of a file, which is created if it is missing.

        Raises BlockingIOError if another process has it.
        """
        ...


def read_whole(disk: Disk, path: Path, size_max: int) -> bytes | None:
    """The content of a small file, None if it is missing. Raises OSError(EFBIG) above `size_max`
    bytes.
    """
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
    """Replace a small file so that a power loss leaves the old content or the new, complete.

    The data is written to `<name>.tmp` in the same directory, synced, renamed over the file, and
    the directory is synced.
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


class LinkRefused(OSError):
    """A symbolic link is in the place of a file. Its errno is ELOOP."""


def as_store_error(error: OSError, doing: str) -> KourouError:
    """The error for a failed disk operation: DiskFull for lack of space, else StoreFaulted.

    ConfigError for a link: the disk works.
    """
    if isinstance(error, LinkRefused):
        return ConfigError(
            f"{doing}: {error.filename} is a symbolic link, and links to files are not followed",
            hint="put the file itself there; a folder may be a link",
        )
    if error.errno in FULL:
        return DiskFull(f"{doing}: no space left on the disk", hint="free space; reads continue")
    return StoreFaulted(f"{doing}: {error.strerror or error}")
