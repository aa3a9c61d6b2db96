"""The settings of a store: its files, and how it reads and recovers them.

To add a setting that a broker passes on unchanged, declare it in `StoreFileSettings`: a broker's
settings inherit that class (kourou.broker.config), and the store gets the value.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kourou.model import limits
from kourou.model.message import DELAY_LEVELS_MS
from kourou.settings.declaration import SAME, setting
from kourou.store.paths import StorePaths


@dataclass(frozen=True, kw_only=True)
class StoreFileSettings:
    """The settings of a store's files.

    Sizes must be those with which the store was written.
    """

    segment_size_bytes: int = setting(
        limits.SEGMENT_SIZE_BYTES,
        "mappedFileSizeCommitLog",
        "Size of one commit log file",
        unit="bytes",
        low=4_096,
        high=limits.INT_MAX,
        rocketmq=SAME,
        aliases=("mapedFileSizeCommitLog",),
    )
    index_slots: int = setting(
        limits.INDEX_SLOTS,
        "maxHashSlotNum",
        "Hash slots of one index file",
        low=1,
        high=limits.INT_MAX,
        rocketmq=SAME,
    )
    index_entries: int = setting(
        limits.INDEX_ENTRIES,
        "maxIndexNum",
        "Entries of one index file",
        low=2,
        high=limits.INT_MAX,
        rocketmq=SAME,
    )
    read_mode: str = setting(
        "mmap",
        "readMode",
        "How records are read; pread tolerates a disk that fails while the file is mapped",
        choices=("mmap", "pread"),
    )
    recent_percent: int = setting(
        40,
        "accessMessageInMemoryMaxRatio",
        "Messages within this share of the machine's memory from the log's end count as in memory",
        unit="percent",
        low=0,
        high=100,
        rocketmq=SAME,
    )
    accept_loss_at: int | None = setting(
        None,
        "acceptDataLoss",
        "Open a store although its flushed messages from this log position on "
        "are lost; the refusal names the position",
        low=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings(StoreFileSettings):
    """All settings of a store.

    `root`: storePathRootDir. `commit_log`, `consume_queue`, `index`, `checkpoint`, `abort`: paths
    that are not RocketMQ's names below `root` (storePathCommitLog and so on). `events`: the SQLite
    file of control events if it is not below `root` (eventStoreUrl). `queue_file_units`:
    mappedFileSizeConsumeQueue / 20. `memory_bytes`: the memory of which `recent_percent` is a
    share; 0 uses the machine's. `staging_buffers`: keep appended bytes in so many buffers of a
    segment's size until they are written out (transientStorePoolSize); 0 writes them at once.
    `reserve_bytes`: space reserved in advance and freed on a full disk. `replicated`: other
    replicas have, or may have, the same log (this also holds for every store with an epoch file):
    after a power loss the log ends at the first missing record that was never promised, instead of
    continuing after it.
    """

    root: Path
    commit_log: Path | None = None
    consume_queue: Path | None = None
    index: Path | None = None
    checkpoint: Path | None = None
    abort: Path | None = None
    events: Path | None = None
    queue_file_units: int = limits.QUEUE_FILE_UNITS
    index_enabled: bool = True
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
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
