"""A file system in memory that simulates power loss, failures and a full disk, determined by a
seed.

State: soft. Everything is a function of the seed and of the calls.

After a power loss (`crash`), each 512-byte sector that was written since the file's last fdatasync
has some earlier version, possibly combined with a part of the next one (torn) or with noise in the
written range (garbled). Each name that was created, moved or removed since the directory's last
sync has either the old or the new state, chosen independently. Synced data survives. Bytes of a
sector that were not being written survive, too: disks promise that a sector is written completely
or not at all, and torn and garbled sectors are already worse than that.

A failing fdatasync behaves as in Linux: the pages are considered clean afterwards, so the next
fdatasync succeeds although the data was never written to the disk.
"""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path

from kourou.store.disk import Buffer

SECTOR = 512
BLOCK = 4096

CAPACITY_BYTES = 64 << 30
"""Too large to be filled by accident, or to be considered small by a broker."""


class PowerLost(Exception):
    """The power failed during a call; `SimDisk.crash()` returns what survived."""


class _Inode:
    """The content of a file: as programs see it, as it is on the disk, and the pending writes.

    Up to `created`, the initial size, the disk has zeros after the end of `durable`.
    """

    __slots__ = ("blocks", "created", "data", "durable", "modified_ms", "pending", "reserved")

    def __init__(self, size: int, *, reserved: bool) -> None:
        self.created = size
        self.data = bytearray(size)
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes]] = []
        self.reserved = reserved
        self.blocks: set[int] = set()
        self.modified_ms = 0

    def space(self) -> int:
        """The bytes that it occupies on the disk."""
        return len(self.data) if self.reserved else BLOCK * len(self.blocks)

    def platter(self) -> bytearray:
        """A copy of the durable content in its full length."""
        return self.durable.ljust(self.created, b"\0")


class SimFile:
    """An open file of a SimDisk."""

    __slots__ = ("_disk", "_inode")

    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def pread(self, size: int, at: int) -> bytes:
        """Read up to `size` bytes from byte `at`; fewer only at the end of the file."""
        return bytes(self._inode.data[at : at + size])

    def pwrite(self, data: Buffer, at: int) -> None:
        """Write all of `data` at byte `at`."""
        self._disk.write(self._inode, bytes(data), at)

    def fdatasync(self) -> None:
        """Make all writes durable, or fail if a failure is due."""
        self._disk.sync(self._inode)

    def size(self) -> int:
        """Length in bytes."""
        return len(self._inode.data)

    def next_data(self, at: int) -> int | None:
        """The start of the first block at or after `at` that has a non-zero byte."""
        data = self._inode.data
        while at < len(data):
            end = (at // BLOCK + 1) * BLOCK
            if data[at:end].strip(b"\0"):
                return at
            at = end
        return None

    def written_ranges(self) -> list[tuple[int, int]]:
        """The blocks that have a non-zero byte; adjacent ones are joined."""
        ranges: list[tuple[int, int]] = []
        at = self.next_data(0)
        while at is not None:
            end = min(at + BLOCK, self.size())
            if ranges and ranges[-1][1] == at:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((at, end))
            at = self.next_data(end)
        return ranges

    def mapped(self) -> memoryview:
        """The whole file, read-only."""
        return memoryview(self._inode.data).toreadonly()

    def forget_cached(self) -> None:
        """Reload the content from the disk, including the pending writes."""
        inode = self._inode
        platter = inode.platter()
        inode.data[: len(platter)] = platter
        for at, data in inode.pending:
            _put(inode.data, at, data)

    def modified_ms(self) -> int:
        """The time set with `SimDisk.set_modified_ms`, else 0."""
        return self._inode.modified_ms

    def close(self) -> None:
        """Nothing to release."""


class SimLock:
    """A lock of a SimDisk."""

    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Release the lock."""
        self._held.discard(self._path)


class SimDisk:
    """A disk whose behaviour is determined by `seed`; `capacity_bytes` limits its content."""

    def __init__(self, seed: int = 0, *, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self.boot_id = "0"
        self.syncs = 0
        self._rng = random.Random(seed)
        self._fail_sync_at = 0
        self._cut_power_at = 0
        # Names are strings, and a directory's value is None; hashing a Path takes ten times longer.
        self._names: dict[str, _Inode | None] = {"/": None}
        self._durable: dict[str, _Inode | None] = {"/": None}
        self._children: dict[str, set[str]] = {"/": set()}
        self._changed: dict[str, set[str]] = {}
        self._locked: set[str] = set()
        self._used = 0

    # -- faults -----------------------------------------------------------------------------------

    def fail_sync(self, nth: int) -> None:
        """Let the nth fdatasync or sync_dir from now on fail once with EIO."""
        self._fail_sync_at = self.syncs + nth

    def cut_power(self, nth: int) -> None:
        """Let the nth fdatasync or sync_dir from now on, and all later ones, raise PowerLost."""
        self._cut_power_at = self.syncs + nth

    def kill(self) -> SimDisk:
        """Simulate the end of the process: locks are released, and no written data is lost.

        Faults that have not occurred yet are cancelled.
        """
        self._locked.clear()
        self._fail_sync_at = self._cut_power_at = 0
        return self

    def copy(self) -> SimDisk:
        """A copy of all files on a new disk, all durable, without locks."""
        after = SimDisk(self._rng.getrandbits(64), capacity_bytes=self.capacity_bytes)
        for name in sorted(self._names):
            inode = self._names[name]
            if name != "/":
                after._link(name, None if inode is None else _settled(inode))
        after._durable = dict(after._names)
        after._changed.clear()
        after._used = self._used
        return after

    def crash(self) -> SimDisk:
        """Cut the power now; returns the disk as it is found afterwards, without locks."""
        after = SimDisk(self._rng.getrandbits(64), capacity_bytes=self.capacity_bytes)
        after.boot_id = str(int(self.boot_id) + 1)
        keep = self._rng.choice((0.0, 0.3, 0.7, 0.95, 1.0))
        names = dict(self._names)
        for changed in self._changed.values():
            for path in sorted(changed):
                if self._rng.random() < keep:
                    continue
                if path in self._durable:
                    names[path] = self._durable[path]
                else:
                    names.pop(path, None)
        moved: dict[int, _Inode] = {}
        for path in sorted(names):
            if path != "/" and _parent(path) in after._children:
                inode = names[path]
                if inode is not None and id(inode) not in moved:
                    moved[id(inode)] = self._survivor(inode, keep)
                after._link(path, None if inode is None else moved[id(inode)])
        after._durable = dict(after._names)
        after._changed.clear()
        after._used = sum(inode.space() for inode in moved.values())
        return after

    def _survivor(self, inode: _Inode, keep: float) -> _Inode:
        left = _Inode(0, reserved=inode.reserved)
        left.modified_ms = inode.modified_ms
        left.blocks = set(inode.blocks)
        left.durable = bytearray(inode.durable)
        sectors: dict[int, list[tuple[int, bytes]]] = {}
        for at, data in inode.pending:
            end = at + len(data)
            for sector in range(at // SECTOR, (end - 1) // SECTOR + 1):
                first = max(at, sector * SECTOR)
                last = min(end, (sector + 1) * SECTOR)
                sectors.setdefault(sector, []).append((first, data[first - at : last - at]))
        for versions in sectors.values():
            self._settle(left.durable, versions, keep)
        left.created = inode.created
        left.data = left.platter()
        return left

    def _settle(self, data: bytearray, versions: list[tuple[int, bytes]], keep: float) -> None:
        """Choose the version of one sector that is found on the disk."""
        rng = self._rng
        kept = len(versions) if rng.random() < keep else rng.randrange(len(versions) + 1)
        for at, piece in versions[:kept]:
            _put(data, at, piece)
        if keep == 1.0:
            return
        chance = rng.random()
        if kept < len(versions) and chance < 0.15:
            at, piece = versions[kept]
            _put(data, at, piece[: rng.randrange(len(piece) + 1)])
        elif chance > 0.95:
            at, piece = versions[-1]
            _put(data, at, rng.randbytes(len(piece)))

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set a file's modification time."""
        self._inode(path).modified_ms = modified_ms

    def read(self, path: Path) -> bytes:
        """The content of a file as programs see it."""
        return bytes(self._inode(path).data)

    def overwrite(self, path: Path, data: bytes, at: int) -> None:
        """Change bytes on the disk directly and durably, to simulate corruption."""
        inode = self._inode(path)
        inode.data[at : at + len(data)] = data
        _put(inode.durable, at, data)
        if inode.pending:
            inode.pending.append((at, data))

    def files(self) -> list[Path]:
        """Every file, sorted."""
        return [Path(name) for name in sorted(self._names) if self._names[name] is not None]

    # -- what files call --------------------------------------------------------------------------

    def write(self, inode: _Inode, data: bytes, at: int) -> None:
        """Write to the page cache, if there is space."""
        if not data:
            return
        end = at + len(data)
        if not inode.reserved or end > len(inode.data):
            blocks = set(range(at // BLOCK, (end - 1) // BLOCK + 1)) - inode.blocks
            self._take(BLOCK * len(blocks))
            inode.blocks |= blocks
        _put(inode.data, at, data)
        inode.pending.append((at, data))

    def sync(self, inode: _Inode) -> None:
        """Make the pending writes durable; a due failure discards them instead."""
        try:
            self._count_sync()
        except OSError:
            inode.pending.clear()
            raise
        for at, data in inode.pending:
            _put(inode.durable, at, data)
        inode.pending.clear()

    def _count_sync(self) -> None:
        self.syncs += 1
        if self._cut_power_at and self.syncs >= self._cut_power_at:
            raise PowerLost
        if self.syncs == self._fail_sync_at:
            raise OSError(errno.EIO, "Input/output error")

    def _take(self, space: int) -> None:
        if self._used + space > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._used += space

    # -- names ------------------------------------------------------------------------------------

    def open(
        self, path: Path, *, create_size: int | None = None, allocate: bool = False
    ) -> SimFile:
        """Open for reading and writing; a missing file is created if `create_size` is given."""
        name = str(path)
        inode = self._names.get(name)
        if inode is None:
            if name in self._names:
                raise IsADirectoryError(errno.EISDIR, "Is a directory", name)
            if create_size is None or _parent(name) not in self._children:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
            if allocate:
                self._take(create_size)
            inode = _Inode(create_size, reserved=allocate)
            self._link(name, inode)
        return SimFile(self, inode)

    def exists(self, path: Path) -> bool:
        """True if there is a file or directory."""
        return str(path) in self._names

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty if there is no such directory."""
        name = str(path)
        if self._names.get(name) is not None:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", name)
        return sorted(child.rpartition("/")[2] for child in self._children.get(name, ()))

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its parents."""
        name = str(path)
        if name in self._children:
            return
        if name in self._names:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        self.make_dirs(path.parent)
        self._link(name, None)

    def rename(self, source: Path, target: Path) -> None:
        """Rename `source` to `target` atomically, replacing it."""
        inode = self._inode(source)
        replaced = self._names.get(str(target))
        if replaced is not None:
            self._used -= replaced.space()
        self._unlink(str(source))
        self._link(str(target), inode)

    def unlink(self, path: Path) -> None:
        """Remove a file if it exists."""
        inode = self._names.get(str(path))
        if inode is not None:
            self._used -= inode.space()
            self._unlink(str(path))

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with its content."""
        name = str(path)
        self.clear_dir(path)
        if name in self._children:
            self._unlink(name)
            del self._children[name]

    def clear_dir(self, path: Path) -> None:
        """Remove the content of a directory."""
        for child in sorted(self._children.get(str(path), ())):
            if child in self._children:
                self.remove_tree(Path(child))
            else:
                self.unlink(Path(child))

    def sync_dir(self, path: Path) -> None:
        """Make the names in this directory durable."""
        directory = str(path)
        if directory not in self._children:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", directory)
        self._count_sync()
        for name in self._changed.pop(directory, ()):
            if name in self._names:
                self._durable[name] = self._names[name]
            else:
                self._durable.pop(name, None)

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes."""
        del path  # there is one file system
        return self.capacity_bytes, self.capacity_bytes - self._used

    def lock(self, path: Path) -> SimLock:
        """Acquire the exclusive lock; raises BlockingIOError if it is held."""
        name = str(path)
        if name in self._locked:
            raise BlockingIOError(errno.EAGAIN, "another process holds it", name)
        if name not in self._children:
            self.open(path, create_size=0)
        self._locked.add(name)
        return SimLock(self._locked, name)

    def _inode(self, path: Path) -> _Inode:
        inode = self._names.get(str(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return inode

    def _link(self, name: str, inode: _Inode | None) -> None:
        self._names[name] = inode
        if inode is None:
            self._children.setdefault(name, set())
        parent = _parent(name)
        self._children[parent].add(name)
        self._changed.setdefault(parent, set()).add(name)

    def _unlink(self, name: str) -> None:
        del self._names[name]
        parent = _parent(name)
        self._children[parent].discard(name)
        self._changed.setdefault(parent, set()).add(name)


def disk_with(folder: Path, seed: int = 0) -> SimDisk:
    """A disk with this folder, which survives power losses."""
    disk = SimDisk(seed)
    disk.make_dirs(folder)
    for path in (folder, *folder.parents):
        disk.sync_dir(path)
    return disk


def _settled(inode: _Inode) -> _Inode:
    """A copy with all bytes durable."""
    copied = _Inode(0, reserved=inode.reserved)
    copied.data = bytearray(inode.data)
    copied.durable = bytearray(inode.data)
    copied.created = inode.created
    copied.blocks = set(inode.blocks)
    copied.modified_ms = inode.modified_ms
    return copied


def _parent(name: str) -> str:
    return name.rpartition("/")[0] or "/"


def _put(target: bytearray, at: int, data: bytes) -> None:
    if at > len(target):
        target.extend(bytes(at - len(target)))
    target[at : at + len(data)] = data


class MemoryDisk(SimDisk):
    """A SimDisk with serialized calls, for a broker and its threads.

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

    def repair(self) -> None:
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
        self.boot_id = disk.boot_id
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
