"""Truncating a tail of the log that the group never committed, so that it cannot come back.

State: the intent, `<root>/kourou/cut`, is log: once written, it is always carried out. The removed
data, `<root>/kourou/diverged/`, is kept for the operator. Format: docs/formats/replication.md.

RocketMQ resets positions in memory and leaves the old tail on disk with valid checksums; after a
crash it is taken for part of the log. Kourou does this instead:

    1  the tail is saved aside, as far as bounds and space allow
    2  the intent is written and synced; the store is closed as if the process had been killed
    3  the next start, before recovery: the record at the position gets an invalid header, synced;
       later epochs are removed, synced; later segments are unlinked, newest first, each one synced;
       the rest of the last segment is zeroed, synced
    4  recovery: nothing after the position counts as promised, queues and index drop what they had
       of it, and a checkpoint records that
    5  the intent is removed, synced, before anything is appended

A crash before the end of step 2 leaves the whole tail, which is compared with the leader's log
again. After a later crash the next start repeats from step 3, which is idempotent. There is only
one code path, and every start exercises it.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kourou.errors import Corrupt, Rejected
from kourou.model.limits import DIVERGED_BYTES_MAX, DIVERGED_FILES_MAX
from kourou.store.config.durable_files import SealedFile
from kourou.store.disk import FULL, Disk
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine, save_quarantine
from kourou.store.paths import NAME_DIGITS, StorePaths
from kourou.store.recovery.recover import StoreParts
from kourou.store.recovery.scan import is_boundary
from kourou.store.replica.replica_files import trim_epochs

_log = logging.getLogger("kourou.store")

MAGIC = b"KRC1"
_POSITION = struct.Struct(">q")
_HINT = (
    "this replica's log was being truncated to what its leader has; remove both files: the replica "
    "then compares its log with the leader's again"
)
_PIECE_BYTES = 1024 * 1024
_NUMBER_DIGITS = 6
_HEADER = bytes(8)
_UNFINISHED = ".tmp"


class Cut(NamedTuple):
    """What was truncated: [position, end) of the log. `saved`: the file with a copy, None if none.

    `saved_bytes`: how many bytes of it were saved, from `position` on.
    """

    position: int
    end: int
    saved: Path | None
    saved_bytes: int


def load_cut(disk: Disk, paths: StorePaths) -> int | None:
    """The position to truncate the log at; None without an intent.

    Raises Corrupt if the intent cannot be read.
    """
    body = _intent(disk, paths).load(_HINT)
    if body is None:
        return None
    if len(body) != _POSITION.size:
        raise Corrupt(f"{paths.cut} cannot be read", hint=_HINT)
    position: int = _POSITION.unpack(body)[0]
    return position


def prepare_cut(
    disk: Disk,
    paths: StorePaths,
    log: CommitLog,
    quarantine: Quarantine,
    position: int,
    confirmed: int,
) -> Cut:
    """Steps 1 and 2; the log must be fully written. See `Store.cut`. Also raises OSError."""
    end = log.end
    if position < confirmed:
        raise Corrupt(
            f"the leader's log diverges from this one at {position}, but all below {confirmed} "
            f"was committed: one of the two has lost committed messages",
            hint="nothing was changed; find out which member has them before you remove one",
        )
    if position < log.start:
        raise Corrupt(
            f"the leader's log diverges from this one at {position}, and this one begins at "
            f"{log.start}",
            hint="nothing was changed; this member must copy the whole log again",
        )
    if position > end:
        raise Rejected(f"the log ends at {end}, before position {position}")
    if quarantine.at(position) is None and not is_boundary(log, quarantine, position):
        raise Rejected(f"no record begins at position {position}")
    saved, count = save_aside(disk, paths, log, position, end)
    _intent(disk, paths).save(_POSITION.pack(position))
    _log.warning(
        "log-truncated: the log is truncated at %(position)d: the %(removed_bytes)d bytes after it "
        "are not in the group's history; %(kept_bytes)d of them are kept in %(kept_file)s",
        {
            "position": position,
            "removed_bytes": end - position,
            "kept_bytes": count,
            "kept_file": saved or "no file",
        },
    )
    return Cut(position, end, saved, count)


def carry_out(disk: Disk, paths: StorePaths, parts: StoreParts) -> None:
    """Step 3, before recovery, if there is an intent. Raises OSError, StoreFaulted."""
    log, quarantine, position = parts.log, parts.quarantine, parts.cut_at
    if position is None:
        return
    inside = log.start <= position <= log.allocated_end
    if inside:
        segment = log.segment_at(position)
        if segment is not None:
            header = _HEADER[: segment.end - position]
            if bytes(segment.view(position, len(header))).strip(b"\0"):
                segment.write(header, position)
                segment.fdatasync()
    trim_epochs(disk, paths, position)
    if any(region.end > position for region in quarantine.regions):
        quarantine.remove(position, max(region.end for region in quarantine.regions))
        save_quarantine(disk, paths, quarantine)
    if inside:
        log.truncate(position)


def forget_cut(disk: Disk, paths: StorePaths) -> None:
    """Step 5. Raises OSError."""
    _intent(disk, paths).remove()


def _intent(disk: Disk, paths: StorePaths) -> SealedFile:
    return SealedFile(disk, paths.cut, MAGIC)


# -- saved data -----------------------------------------------------------------------------------


def save_aside(
    disk: Disk, paths: StorePaths, log: CommitLog, position: int, end: int
) -> tuple[Path | None, int]:
    """Save [position, end), the first DIVERGED_BYTES_MAX bytes at most; returns (file, bytes
    saved).

    Older files are removed to make room. On a full disk nothing is saved, because a replica that
    cannot follow its leader would be worse.
    """
    size = min(end - position, DIVERGED_BYTES_MAX)
    if not size:
        return None, 0
    pieces = list(_pieces(log, position, size))
    crc = 0
    for at, length in pieces:
        crc = zlib.crc32(log.view(at, length), crc)
    suffix = f"-{position:0{NAME_DIGITS}d}-{end:0{NAME_DIGITS}d}-{crc:08x}"
    if not disk.exists(paths.diverged):
        disk.make_dirs(paths.diverged)
        disk.sync_dir(paths.kourou)
    names = disk.list_dir(paths.diverged)
    for name in names:
        if name.endswith(suffix):  # saved by an earlier attempt that a crash interrupted
            return paths.diverged / name, size
    try:
        number = _make_room(disk, paths, names, size)
        path = paths.diverged / f"{number:0{_NUMBER_DIGITS}d}{suffix}"
        _write(disk, path, log, pieces)
    except OSError as error:
        if error.errno not in FULL:
            raise
        _log.warning(
            "truncated-data-lost: no disk space to keep the data truncated from the log at "
            "%(position)d",
            {"position": position},
        )
        return None, 0
    return path, size


def _pieces(log: CommitLog, position: int, size: int) -> Iterator[tuple[int, int]]:
    """(position, length) of small pieces, each in one segment."""
    at, end = position, position + size
    while at < end:
        length = min(_PIECE_BYTES, end - at, log.segment_size - at % log.segment_size)
        yield at, length
        at += length


def _make_room(disk: Disk, paths: StorePaths, names: list[str], size: int) -> int:
    """Remove the oldest saved tails until one of `size` bytes fits; returns its number."""
    kept: list[tuple[str, int]] = []
    for name in names:
        if name.endswith(_UNFINISHED):
            disk.unlink(paths.diverged / name)
            continue
        file = disk.open(paths.diverged / name)
        kept.append((name, file.size()))
        file.close()
    numbers = [int(name[:_NUMBER_DIGITS]) for name, _ in kept if name[:_NUMBER_DIGITS].isdecimal()]
    while kept and (
        len(kept) >= DIVERGED_FILES_MAX
        or sum(length for _, length in kept) + size > DIVERGED_BYTES_MAX
    ):
        disk.unlink(paths.diverged / kept.pop(0)[0])
    return max(numbers, default=0) + 1


def _write(disk: Disk, path: Path, log: CommitLog, pieces: list[tuple[int, int]]) -> None:
    unfinished = path.with_name(path.name + _UNFINISHED)
    file = disk.open(unfinished, create_size=0)
    try:
        for at, length in pieces:
            file.pwrite(log.view(at, length), at - pieces[0][0])
        file.fdatasync()
    finally:
        file.close()
    disk.rename(unfinished, path)
    disk.sync_dir(path.parent)
