"""How a store is laid out and read, as values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kourou.model.delay import DELAY_LEVELS_MS
from kourou.model.limits import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    QUEUE_FILE_UNITS,
    SEGMENT_SIZE_BYTES,
)
from kourou.store.paths import StorePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Sizes must be those with which the store was written.

    `root`: storePathRootDir. `commit_log`, `consume_queue`, `index`, `checkpoint`, `abort`: paths
    that are not RocketMQ's names below `root` (storePathCommitLog and so on). `events`: the SQLite
    file of control events if it is not below `root` (eventStoreUrl).
    `segment_size_bytes`: mappedFileSizeCommitLog. `queue_file_units`: mappedFileSizeConsumeQueue /
    20. `read_mode`: "mmap" serves records from memory mappings, "pread" copies them, so that a
    failing disk gives an error instead of a signal. `accept_loss_at`: the position that an operator
    read in the refusal to open. `recent_percent`, `memory_bytes`: a record within that share of
    memory from the log's end counts as cached (accessMessageInMemoryMaxRatio); 0 asks the machine.
    `staging_buffers`: keep what is appended in so many buffers of a segment's size until it is
    written out (transientStorePoolSize); 0 writes it at once. `reserve_bytes`: space that is taken
    in good times and given back on a full disk. `replicated`: other members have, or may have, the
    same log (so has every store with an epoch file): after a power loss it ends at the first record
    that was never promised and is missing, instead of going on behind it.
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
        """Where everything of this store lies."""
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
        """So near the end of the log a record counts as cached."""
        memory = self.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return memory * self.recent_percent // 100
