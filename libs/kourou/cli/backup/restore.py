"""`kourou restore`: creates a store from a backup, for a broker or Spark. It starts no service.

The store is built in `<target>.restoring` and renamed when all of it is on disk. A store with its
final name is therefore complete, and an interrupted restore is started from the beginning by the
next one. State: none.

    1  an empty store that starts at the backup's first position, with its queue offsets
    2  the segments, each verified with its checksum, and the list of damaged regions
    3  the event store, with the state before the first position
    4  the store is opened, which checks every record and builds queues and index; then closed
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from kourou.broker.storage.bootstrap import record_beginning
from kourou.cli.backup.folder import BackupFolder, BackupManifest
from kourou.errors import ConfigError, Corrupt
from kourou.eventstore.event_store import EventStore
from kourou.store.disk import as_store_error
from kourou.store.log.quarantine import Quarantine, Region, save_quarantine
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk, open_file
from kourou.store.recovery.recovery_point import RecoveryFile, RecoveryPoint
from kourou.store.recovery.restart import restart_log
from kourou.store.replica.replica_files import save_epochs
from kourou.store.settings import StoreSettings
from kourou.store.store import Store

UNFINISHED = ".restoring"
_COPY_BYTES = 4 * 1024 * 1024


def run_restore(source: Path, target: Path, *, as_json: bool) -> int:
    """Create the store `target` from the backup in `source`, and report its contents."""
    manifest = restore(source, target)
    if as_json:
        facts = {
            "store": str(target),
            "cluster": manifest.cluster,
            "broker": manifest.broker,
            "first": manifest.first,
            "end": manifest.end,
            "taken": manifest.taken,
        }
        print(msgspec.json.encode(facts).decode(), flush=True)
        return 0
    if not manifest.whole:
        print(
            "the last backup run was interrupted: the log is restored up to that point",
            file=sys.stderr,
        )
    print(
        f"{manifest.cluster}/{manifest.broker} from {manifest.first} to {manifest.end}, as of "
        f"{manifest.taken}, in {target}: start its broker with storePathRootDir={target} and "
        f"mappedFileSizeCommitLog={manifest.segment_size}",
        flush=True,
    )
    return 0


def restore(source: Path, target: Path) -> BackupManifest:
    """Create the store `target`, which must not exist or be an empty folder.

    Raises ConfigError for an unusable target or source, Corrupt for a backup whose bytes have
    changed, DiskFull or StoreFaulted if the disk fails.
    """
    folder = BackupFolder(source)
    folder.open(make=False)
    disk = RealDisk()
    target = target.absolute()
    if not target.name:
        raise ConfigError(f"{target} is not a separate folder", hint="choose a new folder")
    growing = target.with_name(target.name + UNFINISHED)
    try:
        _check_target(target)
        if growing.exists():
            disk.remove_tree(growing)
        _make(folder, growing, disk)
        growing.rename(target)
        disk.sync_dir(target.parent)
    except PermissionError as error:
        raise ConfigError(f"{error.filename or target} may not be written by this user") from error
    except OSError as error:
        raise as_store_error(error, f"restoring to {target}") from error
    return folder.manifest


def _check_target(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(
            f"{target} already exists",
            hint="restore to a new or empty folder",
        )


def _make(folder: BackupFolder, root: Path, disk: RealDisk) -> None:
    manifest, beginning = folder.manifest, folder.beginning()
    settings = StoreSettings(root=root, segment_size_bytes=manifest.segment_size)
    paths = StorePaths.under(root)
    restart_log(settings, disk, manifest.first, beginning.queue_ends)
    for start, count, sha256 in folder.segments():
        _copy(folder.segment(start), paths.segment(start), count, sha256, manifest)
    disk.sync_dir(paths.commit_log)
    save_quarantine(
        disk,
        paths,
        Quarantine([Region(one.start, one.end, one.reason) for one in manifest.damaged]),
    )
    if manifest.epochs:
        save_epochs(disk, paths, manifest.epochs)
    point = RecoveryFile(disk, paths.recovery_point, RecoveryPoint())
    try:
        # Mark all of it as flushed, so that an unreadable record is a loss and not the end of the
        # log.
        point.save(RecoveryPoint(flushed=manifest.end, projected=manifest.first))
    finally:
        point.close()
    with closing(EventStore.at(paths.kourou / "events.db")) as events:
        record_beginning(beginning, events)
    with closing(Store.open(settings, disk)) as store:
        if store.end != manifest.end:
            raise Corrupt(f"the restored log ends at {store.end}, and not at {manifest.end}")
        _check_damage(store.damaged_regions, manifest)


def _check_damage(found: Sequence[Region], manifest: BackupManifest) -> None:
    """Damage that the broker already had is expected; other damage means that the backup is
    corrupt.
    """
    for one in found:
        if not any(each.start <= one.start and one.end <= each.end for each in manifest.damaged):
            raise Corrupt(
                f"the backup is damaged from position {one.start} to {one.end}: {one.reason}",
                hint="nothing was restored; use another copy of the backup",
            )


def _copy(source: Path, target: Path, count: int, sha256: str, manifest: BackupManifest) -> None:
    """Copy one segment to its full length; bytes beyond the backup are zero."""
    found = hashlib.sha256()
    left = count
    with (
        open(source, "rb", opener=open_file) as reading,
        open(target, "wb", opener=open_file) as writing,
    ):
        os.posix_fallocate(writing.fileno(), 0, manifest.segment_size)  # the log is mapped
        while left and (piece := reading.read(min(_COPY_BYTES, left))):
            found.update(piece)
            writing.write(piece)
            left -= len(piece)
        writing.flush()
        os.fsync(writing.fileno())
    if left or sha256 not in ("", found.hexdigest()):
        raise Corrupt(
            f"{source} differs from the backup: "
            + (f"{left} bytes are missing" if left else "its checksum differs"),
            hint="nothing was restored; use another copy of the backup",
        )
