"""Beginning a member's log at another place than 0: where its leader's begins, or later.

State: the intent, `<root>/kourou/beginning`, is log: written, it is carried out whatever happens.
Format: docs/formats/replication.md.

For a new follower whose leader has deleted the beginning of its log, and for one that was away so
long that its leader's log begins behind its own end. In this order, so that a crash anywhere leaves
an older log that is whole, or one that begins anew at the next start:

    1  what may be in no other log is saved aside, within bounds, and the intent is written, synced;
       the store is closed, as if the process had been killed
    2  the recovery point goes: what it promises is given up
    3  segments go, newest first, each one synced; then queues, index, and what tells of them
    4  the first segment is made, at its place, synced
    5  the event store begins with the state that the intent has (kourou.serving.late_beginning)
    6  the intent is removed, synced, before the store is opened for anybody

A crash before 1 is done changes nothing; one behind it begins again at 2.

The vote stays, as does the format version: neither tells of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from kourou.errors import ConfigError
from kourou.store.commit_log import CommitLog
from kourou.store.cutting import save_aside
from kourou.store.disk import Disk
from kourou.store.epoch_file import remove_epochs, save_epochs
from kourou.store.format_version import check_format, write_format
from kourou.store.opening import StoreLock, make_directories, unusable
from kourou.store.paths import StorePaths, start_of
from kourou.store.retention import QueueEnds, save_queue_ends
from kourou.store.sealed_file import SealedFile
from kourou.store.settings import StoreSettings

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
    """Step 1, all of the log being written; see `Copies.begin_elsewhere`. Raises OSError, too."""
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
        "the log (%d to %d) is discarded and restarts at %d, like the leader's; %d bytes from %d "
        "on differed from the leader's, and %d of them are kept in %s",
        log.start,
        log.end,
        position,
        log.end - common,
        common,
        count,
        saved or "no file",
    )
    return saved


def load_beginning(disk: Disk, paths: StorePaths) -> bytes | None:
    """What came before the place where the log is to begin anew; None if it is not.

    Raises Corrupt if that cannot be read, OSError.
    """
    return _intent(disk, paths).load(_HINT)


def forget_beginning(disk: Disk, paths: StorePaths) -> None:
    """Step 6. Raises OSError."""
    _intent(disk, paths).remove()


def _intent(disk: Disk, paths: StorePaths) -> SealedFile:
    return SealedFile(disk, paths.beginning, MAGIC)


def begin_anew(
    settings: StoreSettings,
    disk: Disk,
    position: int,
    queue_ends: QueueEnds | None = None,
    epochs: Sequence[tuple[int, int]] = (),
) -> int:
    """Let the next `Store.open` find an empty log that begins at the segment of `position`.

    Returns where that is. `queue_ends`: next offsets of queues of which the leader's log has no
    message any more, so that they go on counting here, too. `epochs`: those that start below. Steps
    2 to 4. Raises ConfigError if a process has the store or a newer program wrote it, StoreFaulted
    or DiskFull when the disk does not let it.
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
            # As after a crash: whatever is there is looked through, and queues are built of it.
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
    disk.remove_tree(paths.incoming)
    remove_epochs(disk, paths)
    for path in (paths.quarantine, paths.queue_ends, paths.ages, paths.checkpoint):
        disk.unlink(path)
    for directory in (paths.kourou, paths.checkpoint.parent):
        disk.sync_dir(directory)
    make_directories(disk, paths)
