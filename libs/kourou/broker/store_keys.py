"""The settings of a broker's store: paths, flushes and retention."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kourou.engine.policy import TrafficPolicy
from kourou.errors import ConfigError
from kourou.eventstore.database import check_url, with_password
from kourou.model import limits
from kourou.model.units import HOUR_MS
from kourou.settings.declaration import SAME, setting
from kourou.store.settings import StoreFileSettings


class FlushDiskType(StrEnum):
    """When a send is acknowledged: when it is in memory, or when it is on disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, kw_only=True)
class StoreKeys(StoreFileSettings, TrafficPolicy):
    """The settings of a broker's store: paths, flushes and retention.

    Settings that the store takes unchanged are declared in kourou.store.settings.
    """

    # Paths.
    store_root: Path = setting(
        lambda: Path.home() / "store",
        "storePathRootDir",
        "The store's directory",
        seed=SAME,
        rocketmq=SAME,
        default_text="$HOME/store",
    )
    commit_log_path: Path | None = setting(
        None,
        "storePathCommitLog",
        "Empty is commitlog below the store's directory",
        seed="$HOME/store/commitlog",
        rocketmq="$HOME/store/commitlog",
    )
    consume_queue_path: Path | None = setting(
        None,
        "storePathConsumeQueue",
        "Empty is consumequeue below the store's directory",
        seed="$HOME/store/consumequeue",
    )
    index_path: Path | None = setting(
        None,
        "storePathIndex",
        "Empty is index below the store's directory",
        seed="$HOME/store/index",
    )
    checkpoint_path: Path | None = setting(
        None,
        "storeCheckpoint",
        "Empty is checkpoint below the store's directory",
        seed="$HOME/store/checkpoint",
    )
    abort_path: Path | None = setting(
        None,
        "abortFile",
        "Empty is abort below the store's directory",
        seed="$HOME/store/abort",
    )
    event_store_url: str | None = setting(
        None,
        "eventStoreUrl",
        "Database of control events (SQLAlchemy URL); empty is SQLite in the store's directory",
    )
    event_store_password_file: Path | None = setting(
        None,
        "eventStorePasswordFile",
        "File that contains only the password of that database",
        secret_file=True,
    )
    queue_file_bytes: int = setting(
        limits.QUEUE_FILE_UNITS * limits.QUEUE_UNIT_BYTES,
        "mappedFileSizeConsumeQueue",
        "Size of one consume queue file, a multiple of 20",
        unit="bytes",
        low=20,
        high=limits.INT_MAX,
        rocketmq=SAME,
        aliases=("mapedFileSizeConsumeQueue",),
    )
    message_index: bool = setting(
        True,
        "messageIndexEnable",
        "Index messages by their keys",
        seed=SAME,
        rocketmq=SAME,
    )
    message_index_safe: bool = setting(
        False,
        "messageIndexSafe",
        "Accepted, without effect: no key is lost by a crash, because missing "
        "keys are indexed again from the log",
        seed=SAME,
        rocketmq=SAME,
    )

    # Flushes.
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH,
        "flushDiskType",
        "A send is acknowledged when it is in memory (ASYNC_FLUSH) or on disk (SYNC_FLUSH)",
        seed=SAME,
        rocketmq=SAME,
    )
    sync_flush_timeout_ms: int = setting(
        5_000,
        "syncFlushTimeout",
        "How long a send waits for the flush",
        unit="ms",
        low=1,
        high=limits.DEADLINE_MS_MAX,
        dynamic=True,
        rocketmq=SAME,
    )
    flush_interval_ms: int = setting(
        500,
        "flushIntervalCommitLog",
        "How often an asynchronous flush of the commit log is due",
        unit="ms",
        low=1,
        high=HOUR_MS,
        seed=SAME,
        rocketmq=SAME,
    )
    flush_least_pages: int = setting(
        4,
        "flushCommitLogLeastPages",
        "Fewest dirty pages that an asynchronous flush writes",
        unit="pages of 4 KiB",
        low=0,
        high=limits.INT_MAX,
        seed=SAME,
        rocketmq=SAME,
    )
    flush_thorough_interval_ms: int = setting(
        10_000,
        "flushCommitLogThoroughInterval",
        "After this time, a flush writes any number of dirty pages",
        unit="ms",
        low=1,
        high=HOUR_MS,
        seed=SAME,
        rocketmq=SAME,
    )
    flush_timed: bool = setting(
        False,
        "flushCommitLogTimed",
        "Flush by the clock only; false: also as soon as enough pages are dirty",
        seed=SAME,
        rocketmq="true",
    )
    staging: bool = setting(
        False,
        "transientStorePoolEnable",
        "ASYNC_FLUSH only: messages stay in process memory before they are "
        "written to the log's file; a kill loses messages that are not written "
        "yet",
        rocketmq=SAME,
    )
    staging_pool_size: int = setting(
        5,
        "transientStorePoolSize",
        "Number of those buffers, each as large as a log file",
        low=1,
        high=1_024,
        rocketmq=SAME,
    )
    write_out_interval_ms: int = setting(
        200,
        "commitIntervalCommitLog",
        "How often writing them to the log's file is due",
        unit="ms",
        low=1,
        high=HOUR_MS,
        seed=SAME,
        rocketmq=SAME,
    )
    write_out_least_pages: int = setting(
        4,
        "commitCommitLogLeastPages",
        "Fewest pages that are written at once",
        unit="pages of 4 KiB",
        low=0,
        high=limits.INT_MAX,
        seed=SAME,
        rocketmq=SAME,
    )
    write_out_thorough_interval_ms: int = setting(
        200,
        "commitCommitLogThoroughInterval",
        "After this time, any number of pages is written",
        unit="ms",
        low=1,
        high=HOUR_MS,
        seed=SAME,
        rocketmq=SAME,
    )
    queue_flush_interval_ms: int = setting(
        1_000,
        "flushIntervalConsumeQueue",
        "How often a flush of consume queues is due",
        unit="ms",
        low=1,
        high=HOUR_MS,
        rocketmq=SAME,
    )
    queue_flush_least_pages: int = setting(
        2,
        "flushConsumeQueueLeastPages",
        "Fewest dirty pages that such a flush writes",
        unit="pages of 4 KiB",
        low=0,
        high=limits.INT_MAX,
        rocketmq=SAME,
    )
    queue_flush_thorough_interval_ms: int = setting(
        60_000,
        "flushConsumeQueueThoroughInterval",
        "After this time, such a flush writes any number of dirty pages",
        unit="ms",
        low=1,
        high=HOUR_MS,
        rocketmq=SAME,
    )

    def check_store(self) -> None:
        """Raises ConfigError for settings that are invalid in combination."""
        if self.queue_file_bytes % limits.QUEUE_UNIT_BYTES:
            raise ConfigError("mappedFileSizeConsumeQueue must be a multiple of 20")
        if self.event_store_url:
            check_url(with_password(self.event_store_url, self.event_store_password_file))
        elif self.event_store_password_file:
            raise ConfigError("eventStorePasswordFile is set, but eventStoreUrl is not")
        self._check_paths()

    def _check_paths(self) -> None:
        """Check that no path of the store is, or is inside, a directory with its other data."""
        places = {
            "storePathCommitLog": self.commit_log_path or self.store_root / "commitlog",
            "storePathConsumeQueue": self.consume_queue_path or self.store_root / "consumequeue",
            "storePathIndex": self.index_path or self.store_root / "index",
            "storeCheckpoint": self.checkpoint_path or self.store_root / "checkpoint",
            "abortFile": self.abort_path or self.store_root / "abort",
        }
        for key, place in {"storePathRootDir": self.store_root, **places}.items():
            for other, directory in places.items():
                if key != other and place.is_relative_to(directory):
                    raise ConfigError(
                        f"{key}={place} is {other}={directory}, or inside it",
                        hint="use a separate path for each of them",
                    )

    @property
    def sync_flush(self) -> bool:
        """Does a send wait for the disk?"""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def staging_buffers(self) -> int:
        """Number of staging buffers; 0 under SYNC_FLUSH, as in RocketMQ."""
        return self.staging_pool_size if self.staging and not self.sync_flush else 0
