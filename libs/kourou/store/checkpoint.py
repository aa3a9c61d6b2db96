"""RocketMQ's checkpoint file: three store times, for a RocketMQ broker that opens this store.

    0   8   store time of the newest record in the flushed commit log, ms
    8   8   store time of the newest record in flushed queues and index: RocketMQ fills both again
            from the older of these two times on
    16  8   store time of the last record of the last full index file, ms; 0 before one is full
    24      zeros

State: projection.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from kourou.model.limits import CHECKPOINT_BYTES
from kourou.store.disk import Disk
from kourou.store.recovery.recovery_point import RecoveryPoint

_TIMES = struct.Struct(">3q")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Store times in milliseconds."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0


def load_checkpoint(disk: Disk, path: Path) -> Checkpoint:
    """The checkpoint of a store; zeros if the file is missing or too short."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return Checkpoint()
    try:
        data = file.pread(_TIMES.size, 0)
    finally:
        file.close()
    return Checkpoint(*_TIMES.unpack(data)) if len(data) == _TIMES.size else Checkpoint()


def save_checkpoint(disk: Disk, path: Path, checkpoint: Checkpoint) -> None:
    """Write the three times in place and sync them. Raises OSError."""
    created = not disk.exists(path)
    file = disk.open(path, create_size=CHECKPOINT_BYTES, allocate=True)
    try:
        file.pwrite(_TIMES.pack(checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms), 0)
        file.fdatasync()
    finally:
        file.close()
    if created:
        disk.sync_dir(path.parent)


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Recorded by the event loop's thread, then carried out by any other thread."""

    projected: int
    store_ms: int
    queue_count: int
    offset_total: int
    index_covered: int
    index_entries: int
    index_full_ms: int
    flush_index: bool = True

    def point(self, *, flushed: int, indexed: int, entries_before: int) -> RecoveryPoint:
        """The recovery point that holds once log, queues and index are on disk up to these
        positions.

        `entries_before`: the number of index entries that the previous point relied on.
        """
        entries = self.index_entries
        if indexed < self.index_covered:  # the index is not flushed now, or the disk is full
            entries = min(entries, entries_before)
        return RecoveryPoint(
            flushed=flushed,
            projected=self.projected,
            indexed=min(indexed, flushed),
            store_ms=self.store_ms,
            queue_count=self.queue_count,
            offset_total=self.offset_total,
            index_entries=entries,
        )
