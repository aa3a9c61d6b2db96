"""Where recovery starts: how far the log is flushed and projected; and RocketMQ's checkpoint.

State: projection. If it is lost, the next start reads the whole log once.

A sector consists of 4 bytes "KRP1", then big-endian, 8 bytes each: sequence, flushed position,
position up to which the queues are projected and flushed, the same for the key index, newest store
time at the projected position, number of queues, sum of their maximum offsets, sum of index
entries; and a CRC-32 of all that. The valid sector with the highest sequence applies.

Two sectors are used alternately for checkpoints and are synced. Two others are used alternately
after every flush of the log and are *not* synced: that costs a microsecond, survives a process
crash, and is never wrong, because a flushed position is written only after the log's fdatasync has
returned.

A file without a valid synced sector is ignored: no checkpoint was made since it was created.

Invariant:  projected <= flushed at every checkpoint; a position here was on disk before

RocketMQ's checkpoint file: three store times, for a RocketMQ broker that opens this store.

    0   8   store time of the newest record in the flushed commit log, ms
    8   8   store time of the newest record in flushed queues and index: RocketMQ fills both again
            from the older of these two times on
    16  8   store time of the last record of the last full index file, ms; 0 before one is full
    24      zeros

State: projection.
"""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from kourou.model.limits import CHECKPOINT_BYTES
from kourou.store.disk import Disk, File

FILE_BYTES = 4096
SECTOR_BYTES = 512
_MAGIC = b"KRP1"
_SECTOR = struct.Struct(">4s8q")
_CRC = struct.Struct(">I")
_SYNCED = (0, 1)
_UNSYNCED = (2, 3)


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Positions in bytes, times in ms.

    `projected`, `indexed`: all records below are in the queues or in the key index, and flushed
    there.
    """

    sequence: int = 0
    flushed: int = 0
    projected: int = 0
    indexed: int = 0
    store_ms: int = 0
    queue_count: int = 0
    offset_total: int = 0
    index_entries: int = 0


def load_recovery_point(disk: Disk, path: Path) -> RecoveryPoint | None:
    """The newest valid point; None if there is no file or no valid point in it."""
    return max(load_recovery_points(disk, path), key=lambda point: point.sequence, default=None)


def load_recovery_points(disk: Disk, path: Path) -> list[RecoveryPoint]:
    """Every valid point in the file, in no order; empty if it never had a checkpoint.

    A point written by a flush has the projections' positions of the preceding checkpoint.
    """
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return []
    try:
        data = file.pread(FILE_BYTES, 0)
    finally:
        file.close()
    synced, unsynced = (
        [point for sector in sectors if (point := _decode(data, sector))]
        for sectors in (_SYNCED, _UNSYNCED)
    )
    return synced + unsynced if synced else []


class RecoveryFile:
    """Writes points. Thread-safe."""

    def __init__(self, disk: Disk, path: Path, last: RecoveryPoint) -> None:
        created = not disk.exists(path)
        self._file: File = disk.open(path, create_size=FILE_BYTES, allocate=True)
        if created:
            disk.sync_dir(path.parent)
        self._last = last
        # The first write of each kind overwrites the older of its two sectors.
        found = self._file.pread(FILE_BYTES, 0)
        self._synced_turn = _newer(found, _SYNCED)
        self._unsynced_turn = _newer(found, _UNSYNCED)
        self._lock = threading.Lock()

    @property
    def last(self) -> RecoveryPoint:
        """The point written last."""
        return self._last

    def note_flushed(self, position: int) -> None:
        """Record that the log is flushed up to `position`. Not synced. Raises OSError."""
        with self._lock:
            if position <= self._last.flushed:
                return
            self._last = replace(self._last, sequence=self._last.sequence + 1, flushed=position)
            self._unsynced_turn ^= 1
            self._write(_UNSYNCED[self._unsynced_turn])

    def save(self, point: RecoveryPoint) -> None:
        """Write a complete point and sync it; its sequence is set here. Raises OSError.

        The other synced sector keeps the previous point, so a torn write does not lose both.
        """
        with self._lock:
            assert point.projected <= point.flushed, point
            self._last = replace(point, sequence=self._last.sequence + 1)
            self._synced_turn ^= 1
            self._write(_SYNCED[self._synced_turn])
            self._file.fdatasync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, sector: int) -> None:
        point = self._last
        body = _SECTOR.pack(
            _MAGIC,
            point.sequence,
            point.flushed,
            point.projected,
            point.indexed,
            point.store_ms,
            point.queue_count,
            point.offset_total,
            point.index_entries,
        )
        self._file.pwrite(body + _CRC.pack(zlib.crc32(body)), sector * SECTOR_BYTES)


def _newer(data: bytes, sectors: tuple[int, int]) -> int:
    """Which of two sectors, 0 or 1, has the newer point."""
    first, second = (_decode(data, sector) for sector in sectors)
    return int(second is not None and (first is None or second.sequence > first.sequence))


def _decode(data: bytes, sector: int) -> RecoveryPoint | None:
    raw = data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]
    if len(raw) < _SECTOR.size + _CRC.size or raw[:4] != _MAGIC:
        return None
    body = raw[: _SECTOR.size]
    if _CRC.unpack_from(raw, _SECTOR.size)[0] != zlib.crc32(body):
        return None
    point = RecoveryPoint(*_SECTOR.unpack(body)[1:])
    return point if 0 <= point.projected <= point.flushed else None


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
