"""What `Store.open` needs first: the store's format version, locks, directories and files.

State: none of its own.
"""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from pathlib import Path

import msgspec

from kourou.errors import ConfigError, Corrupt, KourouError
from kourou.store.disk import (
    Disk,
    DiskLock,
    LinkRefused,
    as_store_error,
    read_whole,
    write_atomically,
)
from kourou.store.index.key_index import KeyIndex
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine, load_quarantine, save_quarantine
from kourou.store.paths import StorePaths
from kourou.store.queues.dispatch import Dispatcher
from kourou.store.queues.queue_table import ConsumeQueues
from kourou.store.recovery.recover import RecoveryReport, Signs, StoreParts, look_for_signs
from kourou.store.recovery.recovery_point import load_recovery_point
from kourou.store.replica.truncation import load_cut
from kourou.store.retention import load_queue_ends, save_queue_ends
from kourou.store.settings import StoreSettings

# -- the version of Kourou's own files, so that an older program refuses a newer store ------------


# A store without the file is RocketMQ's, or empty: it is opened by RocketMQ's rules and gets the
# file.

FORMAT = 1
_SIZE_MAX = 64 * 1024


class _Format(msgspec.Struct):
    format: int


def check_format(disk: Disk, paths: StorePaths) -> bool:
    """True if the file is there and its version is supported; False if there is none.

    Changes nothing. Raises ConfigError for a newer version and Corrupt if the file has no version.
    """
    data = read_whole(disk, paths.format_version, _SIZE_MAX)
    if data is None:
        return False
    try:
        found = msgspec.json.decode(data, type=_Format).format
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{paths.format_version} does not contain the version of this store: {error}",
            hint="remove it to open the store by RocketMQ's rules",
        ) from error
    if found > FORMAT:
        raise ConfigError(
            f"the store {paths.root} has format {found}, but this version supports formats up to "
            f"{FORMAT}",
            hint="use the newer version; nothing was changed",
        )
    return True


def write_format(disk: Disk, paths: StorePaths) -> None:
    """Write the current version to the store. Raises OSError."""
    write_atomically(disk, paths.format_version, msgspec.json.encode(_Format(FORMAT)) + b"\n")


_log = logging.getLogger("kourou.store")

LOCK_CONTENT = b"lock"  # RocketMQ writes these four bytes

_NO_PLACE = frozenset({errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP})
"""Errors that no repair of a disk changes: the path cannot hold a store."""


_NO_DIRECTORY_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP})
"""Errors of file systems, such as NFS, on which a directory cannot be locked."""


class StoreLock:
    """The locks of one store: of its root, and of each path that is, or may be, outside of it.

    The root has RocketMQ's lock file. The other directories are locked themselves, because RocketMQ
    treats every file in them as its own. A file outside of the root has a lock file next to it.
    """

    __slots__ = ("_disk", "_held", "_paths")

    def __init__(self, disk: Disk, paths: StorePaths) -> None:
        """Lock the paths that exist, then the root, which is created if it is missing.

        A store that is refused is not changed. Raises ConfigError if another process has one of the
        locks, OSError if the disk fails.
        """
        self._disk = disk
        self._paths = paths
        self._held: dict[str, DiskLock] = {}
        try:
            for key, (path, place) in self._places().items():
                if disk.exists(place):
                    self._take(key, path, place)
            make_root(disk, paths.root)
            self._take("storePathRootDir", paths.root, paths.lock)
            _fill_lock(disk, paths.lock)
        except BaseException:
            self.release()
            raise

    def take_rest(self) -> None:
        """Lock the remaining paths, once the directories exist."""
        for key, (path, place) in self._places().items():
            if self._disk.exists(place.parent):  # SQLite reports problems with its own files
                self._take(key, path, place)

    def release(self) -> None:
        """Release all locks."""
        while self._held:
            self._held.popitem()[1].release()

    def _places(self) -> dict[str, tuple[Path, Path]]:
        """What is locked for a setting: setting -> (path, file or directory with its lock)."""
        paths = self._paths
        directories = {
            "storePathCommitLog": paths.commit_log,
            "storePathConsumeQueue": paths.consume_queue,
            "storePathIndex": paths.index,
        }
        files = {
            "storeCheckpoint": paths.checkpoint,
            "abortFile": paths.abort,
            "eventStoreUrl": paths.events,
        }
        return {
            "storePathRootDir": (paths.root, paths.lock),
            **{key: (path, path) for key, path in directories.items()},
            **{
                key: (path, path.with_name(f"{path.name}.lock"))
                for key, path in files.items()
                if not path.is_relative_to(paths.root)
            },
        }

    def _take(self, key: str, path: Path, place: Path) -> None:
        if key in self._held:
            return
        try:
            self._held[key] = self._disk.lock(place)
        except BlockingIOError as error:
            what = f"the store {path}" if place == self._paths.lock else f"{key}={path}"
            raise ConfigError(
                f"another broker uses {what}", hint=f"stop it, or give this one another {key}"
            ) from error
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_LOCKS:
                raise
            _log.warning(
                "store-lock-unavailable: %(setting)s=%(path)s cannot be locked: %(error)s",
                {"setting": key, "path": path, "error": error.strerror or error},
            )


def _fill_lock(disk: Disk, path: Path) -> None:
    """Write RocketMQ's content once: a store that is refused later stays unchanged."""
    file = disk.open(path)
    try:
        if file.pread(len(LOCK_CONTENT), 0) != LOCK_CONTENT:
            file.pwrite(LOCK_CONTENT, 0)
    finally:
        file.close()


def make_root(disk: Disk, root: Path) -> None:
    """Create the directory of the store and its missing parents, durably.

    Raises OSError, and ConfigError where no directory can be created.
    """
    missing = [path for path in (root, *root.parents) if not disk.exists(path)]
    _make(disk, root)
    for path in reversed(missing):
        with suppress(PermissionError):
            disk.sync_dir(path.parent)


def make_directories(disk: Disk, paths: StorePaths) -> None:
    """Create every directory of the store, durably. Raises what `make_root` raises."""
    for directory in paths.directories:
        _make(disk, directory)
    for parent in dict.fromkeys(directory.parent for directory in paths.directories):
        with suppress(PermissionError):  # the parent of the root may not be readable
            disk.sync_dir(parent)
    # A process killed while it created a segment may have left a name that is not durable yet.
    disk.sync_dir(paths.commit_log)


def _make(disk: Disk, directory: Path) -> None:
    try:
        disk.make_dirs(directory)
    except FileNotFoundError as error:  # parents are created too, so this is /proc or similar
        raise _no_place(directory, error) from error


def find_parts(
    settings: StoreSettings, disk: Disk, paths: StorePaths, *, known: bool
) -> StoreParts:
    """Open the files on disk, reading as little as possible; `known`: Kourou's own files exist too.

    Raises ConfigError or Corrupt for segments that do not fit, OSError if the disk fails.
    """
    mapped = settings.read_mode == "mmap"
    log = CommitLog.open(
        disk,
        paths,
        settings.segment_size_bytes,
        mapped=mapped,
        staging_buffers=settings.staging_buffers,
    )
    queues = ConsumeQueues(disk, paths, file_units=settings.queue_file_units)
    index = None
    if settings.index_enabled:
        index = KeyIndex(
            disk,
            paths.index,
            slot_count=settings.index_slots,
            entry_count=settings.index_entries,
        )

    quarantine = load_quarantine(disk, paths) if known else Quarantine([])
    queue_ends = load_queue_ends(disk, paths) if known else {}

    def remember() -> None:
        if len(quarantine) or disk.exists(paths.quarantine):  # spare a full disk
            save_quarantine(disk, paths, quarantine)
        save_queue_ends(disk, paths, queue_ends)

    def disown() -> None:
        if disk.exists(paths.recovery_point):
            remember()
            disk.unlink(paths.recovery_point)
            disk.sync_dir(paths.kourou)

    def begin() -> None:
        if not known and log.segments:
            _log.warning(
                "store-format-unknown: the store %(store)s has a log but no %(file)s: it was "
                "written by RocketMQ or an older version, or the file was lost; it is opened by "
                "RocketMQ's rules",
                {"store": paths.root, "file": paths.format_version.relative_to(paths.root)},
            )
        disk.open(paths.abort, create_size=0).close()
        disk.sync_dir(paths.abort.parent)
        if not known:
            write_format(disk, paths)

    return StoreParts(
        log,
        queues,
        index,
        Dispatcher(queues, index, settings.delay_levels_ms),
        quarantine,
        load_recovery_point(disk, paths.recovery_point) if known else None,
        disk.exists(paths.abort),
        begin,
        disown,
        remember,
        settings.accept_loss_at,
        queue_ends,
        look_for_signs(disk, paths) if known else Signs(),
        load_cut(disk, paths),
        settings.replicated or disk.exists(paths.epochs),
        power_lost=_was_booted(disk, paths),
    )


def _was_booted(disk: Disk, paths: StorePaths) -> bool:
    """Return whether the machine was started since the store was opened last, as far as is known.

    Then a crash may have been a power loss. Raises OSError.
    """
    known = read_whole(disk, paths.boot, _SIZE_MAX)
    return known is not None and known != disk.boot_id.encode()


def note_boot(disk: Disk, paths: StorePaths) -> None:
    """Store which start of the machine this is, once the store is recovered. Raises OSError."""
    now = disk.boot_id.encode()
    if read_whole(disk, paths.boot, _SIZE_MAX) != now:
        write_atomically(disk, paths.boot, now)


def log_external_writes(report: RecoveryReport, paths: StorePaths) -> None:
    """Log that another program wrote to the store, and the consequence."""
    if report.external_writes:
        _log.warning(
            "store-writer-changed: another broker wrote to the store %(store)s since this one "
            "stopped (%(writes)s); it was opened by RocketMQ's rules and ends at %(end)d now",
            {"store": paths.root, "writes": report.external_writes, "end": report.end},
        )


def unusable(disk: Disk, root: Path, error: OSError) -> KourouError:
    """Convert an OSError during opening into an error for the operator."""
    match error:
        case LinkRefused():
            return as_store_error(error, f"opening the store {root}")
        case NotADirectoryError() | FileExistsError():
            # The error has the path that was asked for; the file is that path or a parent.
            asked = Path(error.filename or root)
            file = next((path for path in (asked, *asked.parents) if disk.exists(path)), asked)
            return ConfigError(f"{file} is a file where a directory is needed")
        case PermissionError():
            return ConfigError(
                f"{error.filename or root} may not be read and written by this user",
                hint="set its owner, or give another storePathRootDir",
            )
    if error.errno in _NO_PLACE:
        return _no_place(root, error)
    return as_store_error(error, f"opening the store {root}")


def _no_place(directory: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the directory {directory} cannot be made: {error.strerror or error}",
        hint="give another storePathRootDir, or storePathCommitLog",
    )
