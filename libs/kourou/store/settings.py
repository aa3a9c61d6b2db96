"""The layout and the read mode of a store, as values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kourou.model.limits import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    QUEUE_FILE_UNITS,
    SEGMENT_SIZE_BYTES,
)
from kourou.model.message import DELAY_LEVELS_MS
from kourou.store.paths import StorePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Sizes must be those with which the store was written.

    `root`: storePathRootDir. `commit_log`, `consume_queue`, `index`, `checkpoint`, `abort`: paths
    that are not RocketMQ's names below `root` (storePathCommitLog and so on). `events`: the SQLite
    file of control events if it is not below `root` (eventStoreUrl). `segment_size_bytes`:
    mappedFileSizeCommitLog. `queue_file_units`: mappedFileSizeConsumeQueue / 20. `read_mode`:
    "mmap" serves records from memory mappings, "pread" copies them, so that a failing disk causes
    an error instead of a signal. `accept_loss_at`: the position in the error with which the store
    was refused, accepted by an operator. `recent_percent`, `memory_bytes`: a record within that
    share of memory from the log's end counts as cached (accessMessageInMemoryMaxRatio); 0 uses the
    machine's memory. `staging_buffers`: keep appended bytes in so many buffers of a segment's size
    until they are written out (transientStorePoolSize); 0 writes them at once. `reserve_bytes`:
    space reserved in advance and freed on a full disk. `replicated`: other replicas have, or may
    have, the same log (this also holds for every store with an epoch file): after a power loss the
    log ends at the first missing record that was never promised, instead of continuing after it.
    """

    root: Path
    commit_log: Path | None = None
    consume_queue: Path | None = None
    index: Path | None = None
    checkpoint: Path | None = None
    abort: Path | None = None
    events: Path | None = None
    segment_size_bytes: int = SEGMENT_SIZE_BYTES
    queue_file_units: int = QUEUE_FILE_UNITS
    index_enabled: bool = True
    index_slots: int = INDEX_SLOTS
    index_entries: int = INDEX_ENTRIES
    read_mode: Literal["mmap", "pread"] = "mmap"
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
    accept_loss_at: int | None = None
    recent_percent: int = 40
    memory_bytes: int = 0
    reserve_bytes: int = 0
    staging_buffers: int = 0
    replicated: bool = False

    @property
    def paths(self) -> StorePaths:
        """The paths of this store."""
        return StorePaths.under(
            self.root,
            commit_log=self.commit_log,
            consume_queue=self.consume_queue,
            index=self.index,
            checkpoint=self.checkpoint,
            abort=self.abort,
            events=self.events,
        )

    @property
    def recent_bytes(self) -> int:
        """A record this close to the end of the log counts as cached."""
        memory = self.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return memory * self.recent_percent // 100
