"""A pool that serves thousands of files with a bounded number of file descriptors.

State: soft. Which files are open, and which are dirty; both are rebuilt by use.

One thread writes; any thread may read, and any thread may call `flush`. A file in use is *pinned*
and is not closed, so the bound may be exceeded by the number of threads that use files. A file is
marked dirty after its write has returned, hence a `flush` covers every write that returned before
the flush began.
"""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from pathlib import Path

from kourou.errors import StoreFaulted
from kourou.store.disk import Buffer, Disk, File, as_store_error

OPEN_FILES_MAX = 12_288
"""Of the 20,000 descriptors that a small machine allows; the rest are for sockets."""


def affordable_files(count_max: int = OPEN_FILES_MAX) -> int:
    """How many files may be open: `count_max`, or three fifths of the descriptor limit."""
    granted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return count_max if granted < 0 else max(1, min(count_max, granted * 3 // 5))


class PooledFile:
    """A file of fixed size in a pool; the pool decides when it is open.

    `size` is its length in bytes; the first write creates it sparse with that length.
    """

    __slots__ = ("handle", "path", "pins", "removed", "size")

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.handle: File | None = None
        self.pins = 0
        self.removed = False

    def __repr__(self) -> str:
        return f"PooledFile({self.path})"


class OpenFiles:
    """Opens, closes, reads, writes and flushes the files of one kind."""

    def __init__(self, disk: Disk, count_max: int = OPEN_FILES_MAX) -> None:
        assert count_max >= 1, count_max
        self._disk = disk
        self.count_max = count_max
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._open: OrderedDict[PooledFile, None] = OrderedDict()
        self._dirty: dict[PooledFile, None] = {}
        self._new_names: dict[Path, None] = {}
        self._fault: StoreFaulted | None = None
        self.opened = 0
        self.evicted = 0

    @property
    def open_count(self) -> int:
        """The number of files that are open."""
        return len(self._open)

    @property
    def dirty_count(self) -> int:
        """The number of files written since the last flush."""
        return len(self._dirty)

    def read(self, file: PooledFile, size: int, at: int) -> bytes:
        """Up to `size` bytes from byte `at`. Raises OSError if the disk fails."""
        handle = self._pin(file, create=False)
        try:
            return handle.pread(size, at)
        finally:
            self._unpin(file)

    def write(self, file: PooledFile, data: Buffer, at: int) -> None:
        """Write all of `data` at byte `at`; a missing file is created with its full length.

        Raises OSError if the disk fails; then some of the bytes may have been written.
        """
        handle = self._pin(file, create=True)
        try:
            handle.pwrite(data, at)
        finally:
            with self._lock:
                if not file.removed:
                    self._dirty[file] = None
                self._let_go(file)

    def length(self, file: PooledFile) -> int:
        """The length of the file on disk."""
        handle = self._pin(file, create=False)
        try:
            return handle.size()
        finally:
            self._unpin(file)

    def next_data(self, file: PooledFile, at: int) -> int | None:
        """The first byte from `at` on that may differ from zero; None if there is none."""
        handle = self._pin(file, create=False)
        try:
            return handle.next_data(at)
        finally:
            self._unpin(file)

    def modified_ms(self, file: PooledFile) -> int:
        """When the file was last written, wall clock milliseconds."""
        handle = self._pin(file, create=False)
        try:
            return handle.modified_ms()
        finally:
            self._unpin(file)

    def remove(self, file: PooledFile) -> None:
        """Unlink the file and drop it from the pool; operations in progress finish undisturbed."""
        with self._lock:
            file.removed = True
            self._dirty.pop(file, None)
            self._open.pop(file, None)
            if not file.pins:
                self._close(file)
            self._new_names[file.path.parent] = None
        self._disk.unlink(file.path)

    def flush(self) -> int:
        """Make every write that has returned survive a power loss, file names included.

        Returns the number of files synced. The first failure is permanent (StoreFaulted on every
        later call): the kernel may have dropped what it could not write, so a second sync could
        report false success.
        """
        with self._flushing:
            if self._fault is not None:
                raise self._fault
            with self._lock:
                dirty, self._dirty = self._dirty, {}
                names, self._new_names = self._new_names, {}
            try:
                for file in dirty:
                    self._sync(file)
                for directory in names:
                    if self._disk.exists(directory):
                        self._disk.sync_dir(directory)
            except OSError as error:
                self._fault = StoreFaulted(str(as_store_error(error, "flush of a projection")))
                raise self._fault from error
            return len(dirty)

    def close(self) -> None:
        """Close every file; nothing is flushed."""
        with self._lock:
            for file in list(self._open):
                self._open.pop(file)
                if not file.pins:
                    self._close(file)

    def make_dirs(self, directory: Path, root: Path) -> None:
        """Create a directory below `root`; the next flush makes the names down to it durable."""
        self._disk.make_dirs(directory)
        with self._lock:
            while directory != root:
                directory = directory.parent
                self._new_names[directory] = None

    def _sync(self, file: PooledFile) -> None:
        """Sync one file, unless it was removed in the meantime."""
        try:
            handle = self._pin(file, create=False)
        except FileNotFoundError:
            if file.removed:
                return
            raise
        try:
            handle.fdatasync()
        finally:
            self._unpin(file)

    def _pin(self, file: PooledFile, *, create: bool) -> File:
        with self._lock:
            handle = file.handle
            if handle is not None:
                file.pins += 1
                if file in self._open:
                    self._open.move_to_end(file)
                return handle
            if file.removed:
                raise FileNotFoundError(f"{file.path} was removed")
            return self._open_file(file, create=create)

    def _open_file(self, file: PooledFile, *, create: bool) -> File:
        """Open under the lock: two threads must not open the same file twice."""
        while len(self._open) >= self.count_max and self._evict():
            pass
        try:
            handle = self._disk.open(file.path)
        except FileNotFoundError:
            if not create:
                raise
            handle = self._disk.open(file.path, create_size=file.size)
            self._new_names[file.path.parent] = None
        self.opened += 1
        file.handle = handle
        file.pins += 1
        self._open[file] = None
        return handle

    def _evict(self) -> bool:
        """Close the least recently used file; False if all are in use."""
        for file in self._open:
            if not file.pins:
                del self._open[file]
                self._close(file)
                self.evicted += 1
                return True
        return False

    def _unpin(self, file: PooledFile) -> None:
        with self._lock:
            self._let_go(file)

    def _let_go(self, file: PooledFile) -> None:
        file.pins -= 1
        assert file.pins >= 0, file
        if not file.pins and file not in self._open:
            self._close(file)

    def _close(self, file: PooledFile) -> None:
        handle, file.handle = file.handle, None
        if handle is not None:
            handle.close()
