"""Restarting a follower's log at another position: the start of the leader's log, or later.

State: the intent, `<root>/kourou/beginning`, is log: once written, it is always carried out.
Format: docs/formats/replication.md.

A follower needs this if it is new and its leader has already deleted the oldest segments, or if it
was offline for so long that the leader's log starts after the end of its own. The order of the
steps ensures that a crash at any point leaves either the complete old log, or an intent that the
next start completes:

    1  data that may exist in no other log is saved aside, within bounds; the intent is written and
       synced; the store is closed as if the process had been killed
    2  the recovery point is removed, so the store promises nothing any more
    3  segments are removed, newest first, each removal synced; then the queues, the index and all
       files that describe them
    4  the first segment is created at the new position and synced
    5  the event store starts with the state in the intent (kourou.broker.storage.bootstrap)
    6  the intent is removed and the removal synced, before the store is opened for anything else

A crash before the end of step 1 changes nothing; after a later crash the next start repeats from
step 2.

The vote file and the format version stay, because they do not depend on the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from kourou.errors import ConfigError
from kourou.store.config.durable_files import SealedFile
from kourou.store.disk import Disk
from kourou.store.log.commit_log import CommitLog
from kourou.store.paths import StorePaths, start_of
from kourou.store.replica.replica_files import remove_epochs, save_epochs
from kourou.store.replica.truncation import save_aside
from kourou.store.retention import QueueEnds, save_queue_ends
from kourou.store.settings import StoreSettings
from kourou.store.startup import StoreLock, check_format, make_directories, unusable, write_format

_log = logging.getLogger("kourou.store")

MAGIC = b"KRB1"
_HINT = (
    "the log of this replica should restart where the leader's log starts: "
    "remove the whole store of this replica, which then copies the log from "
    "another one"
)


def intend_to_begin(
    disk: Disk, paths: StorePaths, log: CommitLog, position: int, common: int, body: bytes
) -> Path | None:
    """Step 1; the log must be fully written. See `Copies.restart_at`. Also raises OSError."""
    if position % log.segment_size:
        raise ConfigError(
            f"the leader's log begins at {position}, which is not a segment boundary for "
            f"segments of {log.segment_size} bytes",
            hint="mappedFileSizeCommitLog must be the same at all members",
        )
    common = min(max(common, log.start), log.end)
    saved, count = save_aside(disk, paths, log, common, log.end)
    _intent(disk, paths).save(body)
    _log.warning(
        "log-restarted: the log (%(start)d to %(end)d) is discarded and restarts at %(position)d, "
        "like the leader's; %(differing_bytes)d bytes from %(common)d on differed from the "
        "leader's, and %(kept_bytes)d of them are kept in %(kept_file)s",
        {
            "start": log.start,
            "end": log.end,
            "position": position,
            "differing_bytes": log.end - common,
            "common": common,
            "kept_bytes": count,
            "kept_file": saved or "no file",
        },
    )
    return saved


def load_beginning(disk: Disk, paths: StorePaths) -> bytes | None:
    """The stored state of what preceded the position where the log restarts; None without an
    intent.

    Raises Corrupt if the intent cannot be read, OSError if the disk fails.
    """
    return _intent(disk, paths).load(_HINT)


def forget_beginning(disk: Disk, paths: StorePaths) -> None:
    """Step 6. Raises OSError."""
    _intent(disk, paths).remove()


def _intent(disk: Disk, paths: StorePaths) -> SealedFile:
    return SealedFile(disk, paths.beginning, MAGIC)


def restart_log(
    settings: StoreSettings,
    disk: Disk,
    position: int,
    queue_ends: QueueEnds | None = None,
    epochs: Sequence[tuple[int, int]] = (),
) -> int:
    """Prepare an empty log that starts at the segment of `position`, for the next `Store.open`.

    Steps 2 to 4. Returns the start position. `queue_ends`: next offsets of the queues of which the
    leader's log has no message any more, so that their offsets continue here too. `epochs`: the
    epochs that start below the position. Raises ConfigError if another process uses the store or a
    newer version wrote it, StoreFaulted or DiskFull if the disk fails or is full.
    """
    paths = settings.paths
    start = position - position % settings.segment_size_bytes
    try:
        known = check_format(disk, paths)
        lock = StoreLock(disk, paths)
        try:
            make_directories(disk, paths)
            lock.take_rest()
            _clear(disk, paths)
            if queue_ends:
                save_queue_ends(disk, paths, queue_ends)
            if epochs:
                save_epochs(disk, paths, epochs)
            if not known:
                write_format(disk, paths)
            # As after a crash: recovery scans the log and builds the queues from it.
            disk.open(paths.abort, create_size=0).close()
            disk.sync_dir(paths.abort.parent)
            size = settings.segment_size_bytes
            disk.open(paths.segment(start), create_size=size, allocate=True).close()
            disk.sync_dir(paths.commit_log)
        finally:
            lock.release()
    except OSError as error:
        raise unusable(disk, paths.root, error) from error
    return start


def _clear(disk: Disk, paths: StorePaths) -> None:
    disk.unlink(paths.recovery_point)
    disk.sync_dir(paths.kourou)
    for name in reversed(disk.list_dir(paths.commit_log)):
        if start_of(name) is not None:
            disk.unlink(paths.commit_log / name)
            disk.sync_dir(paths.commit_log)
    for directory in (paths.consume_queue, paths.index):
        disk.clear_dir(directory)
        disk.sync_dir(directory)
    remove_epochs(disk, paths)
    for path in (paths.quarantine, paths.queue_ends, paths.ages, paths.checkpoint):
        disk.unlink(path)
    for directory in (paths.kourou, paths.checkpoint.parent):
        disk.sync_dir(directory)
    make_directories(disk, paths)
