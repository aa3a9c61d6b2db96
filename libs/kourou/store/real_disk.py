"""The machine's own file system, behind the protocols of kourou.store.disk.

State: none, except open files.

A new file gets its length under a hidden name and is renamed once it is complete, so that a file
never has a wrong length, not even after a power loss. A file is mapped read-only and never
shortened: access to a mapping beyond the end of its file would kill the process.

A symbolic link in the place of a file is not followed: who can write to a folder does not choose
which other files a process with more rights reads or overwrites. Folders may be links, because
administrators put them on other disks.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import struct
from pathlib import Path

from kourou.store.disk import Buffer, LinkRefused

_UNFINISHED = ".creating"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOCK_BYTES = 1  # RocketMQ locks the first byte of the file


class RealFile:
    """An open file of the machine."""

    __slots__ = ("_fd", "_mapping", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._mapping: memoryview | None = None

    def pread(self, size: int, at: int) -> bytes:
        """Up to `size` bytes from byte `at`; fewer only at the end of the file."""
        data = os.pread(self._fd, size, at)
        if len(data) == size or not data:
            return data
        parts = [data]
        done = len(data)
        while done < size and (data := os.pread(self._fd, size - done, at + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pwrite(self, data: Buffer, at: int) -> None:
        """Write all of `data` at byte `at`."""
        written = os.pwrite(self._fd, data, at)
        if written == len(data):
            return
        rest = memoryview(data)[written:]
        while rest:
            at += written
            written = os.pwrite(self._fd, rest, at)
            rest = rest[written:]

    def fdatasync(self) -> None:
        """Return once everything written survives a power loss."""
        os.fdatasync(self._fd)

    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self._fd).st_size

    def next_data(self, at: int) -> int | None:
        """The first byte from `at` on that may differ from zero; None if the rest is all zero."""
        try:
            return os.lseek(self._fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only holes and reserved space up to the end
                return None
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system without holes
                return at if at < self.size() else None
            raise

    def written_ranges(self) -> list[tuple[int, int]]:
        """The ranges that may differ from zero, as (first byte, end) in order."""
        ranges: list[tuple[int, int]] = []
        at = self.next_data(0)
        while at is not None:
            end = os.lseek(self._fd, at, os.SEEK_HOLE)
            ranges.append((at, end))
            at = self.next_data(end)
        return ranges

    def mapped(self) -> memoryview:
        """The whole file, read-only; the mapping lives as long as any view of it."""
        if self._mapping is None:
            self._mapping = memoryview(mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ))
        return self._mapping

    def forget_cached(self) -> None:
        """Drop clean cached pages, so that the next reads come from the device."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def modified_ms(self) -> int:
        """When it was last written, wall clock."""
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def close(self) -> None:
        """Close the descriptor. Views handed out keep their mapping; the last one unmaps it."""
        self._mapping = None
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class RealLock:
    """An open-file-description lock; it also excludes processes that use POSIX locks."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def open_file(path: str | Path, flags: int) -> int:
    """Open a file and return its descriptor; a new one is for its owner only.

    Raises LinkRefused for a symbolic link. It can be the `opener` of `open`.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP or not Path(path).is_symlink():
            raise
        raise LinkRefused(errno.ELOOP, "a symbolic link is not followed", str(path)) from error


class RealDisk:
    """The file system of the machine."""

    __slots__ = ()

    def open(
        self, path: Path, *, create_size: int | None = None, allocate: bool = False
    ) -> RealFile:
        """Open for reading and writing, created first if missing and `create_size` is given."""
        try:
            return RealFile(path, open_file(path, os.O_RDWR))
        except FileNotFoundError:
            if create_size is None:
                raise
        return self._create(path, create_size, allocate=allocate)

    @property
    def boot_id(self) -> str:
        """What Linux makes at each start of the machine; "" elsewhere."""
        try:
            return _BOOT_ID.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def _create(self, path: Path, size: int, *, allocate: bool) -> RealFile:
        unfinished = path.with_name(path.name + _UNFINISHED)
        fd = open_file(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            if allocate and size:
                # Reserving the blocks now makes a full disk an error here; writing to a sparse
                # mapping would raise a signal later.
                os.posix_fallocate(fd, 0, size)
                os.fdatasync(fd)
            elif size:
                os.ftruncate(fd, size)
            unfinished.rename(path)
        except BaseException:
            os.close(fd)
            unfinished.unlink(missing_ok=True)
            raise
        return RealFile(path, fd)

    def exists(self, path: Path) -> bool:
        """True if there is a file or directory."""
        return path.exists()

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; files whose creation was interrupted are left out."""
        try:
            names = [entry.name for entry in path.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if not name.endswith(_UNFINISHED))

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its parents; new ones are for their owner only."""
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError:
            self.make_dirs(path.parent)
            path.mkdir(mode=0o700, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` with `source`, atomically."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file if it exists."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and everything below it."""
        if path.exists():
            shutil.rmtree(path)

    def clear_dir(self, path: Path) -> None:
        """Remove everything in a directory."""
        for child in path.iterdir() if path.exists() else ():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()

    def sync_dir(self, path: Path) -> None:
        """Return once the names in this directory survive a power loss."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes; space reserved for root is in neither, as in `df` and RocketMQ."""
        stat = os.statvfs(path)
        used = stat.f_blocks - stat.f_bfree
        return stat.f_frsize * (used + stat.f_bavail), stat.f_frsize * stat.f_bavail

    def lock(self, path: Path) -> RealLock:
        """Take the exclusive lock. Raises BlockingIOError if another process has it.

        The lock of a file is on its first byte, as in RocketMQ. Such a lock requires a file opened
        for writing, and a directory cannot be, so a directory is locked with flock(2).
        """
        is_directory = path.is_dir()
        if is_directory:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            fd = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if is_directory:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                request = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, _LOCK_BYTES, 0)
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise BlockingIOError(error.errno, "another process holds it", str(path)) from None
            raise
        return RealLock(fd)
