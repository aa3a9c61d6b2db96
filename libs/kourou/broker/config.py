"""The settings of a broker and of its store, under RocketMQ's names.

RocketMQ's keys that have no effect in Kourou are in kourou.service.rocketmq_keys.

State: none; settings are read once. Keys marked dynamic may be changed while the broker runs, by
events (kourou.settings.registry).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from kourou.broker.administrators import AdministratorFile, InitialUsersFile, recovery_file
from kourou.broker.raft_keys import FLUSHED, RaftKeys
from kourou.engine.policy import BrokerPolicy, TrafficPolicy
from kourou.errors import ConfigError
from kourou.eventstore.database import check_url, with_password
from kourou.model import limits
from kourou.model.limits import PORT_MAX
from kourou.model.units import HOUR_MS
from kourou.service.process_keys import REPLICATION_PORT_SHIFT
from kourou.service.rocketmq_keys import BROKER_KEYS
from kourou.settings.declaration import SAME, setting
from kourou.store.settings import StoreFileSettings
from kourou.transport.curve_keys import ANY


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


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(BrokerPolicy, StoreKeys, RaftKeys):
    """All keys of `broker.conf`. The constructor raises ConfigError for invalid settings."""

    inert_keys: ClassVar[Collection[str]] = BROKER_KEYS

    def __post_init__(self) -> None:
        """Raises ConfigError for settings that are invalid in combination."""
        self.check_process()
        self.settle_raft()
        self.check_network()
        self.check_raft()
        self.check_store()
        self._check_access()
        self.delete_hours  # noqa: B018 - raises if malformed
        self.delay_levels_ms  # noqa: B018 - raises if malformed

    def _check_access(self) -> None:
        """Raises ConfigError for files of keys or users that cannot be used.

        Keys must not lie next to what they encrypt.
        """
        if self.users_file is not None:
            self.users_file.users()
        path, root = self.access_key_file, self.store_root
        if path is None:
            return
        if path.resolve().is_relative_to(root.resolve()):
            raise ConfigError(
                f"accessKeyFile={path} is inside storePathRootDir",
                hint="keep it elsewhere: a copy of the store must not contain its keys",
            )
        self.secret_keys  # noqa: B018 - raises if they cannot be read

    @property
    def administrator_files(self) -> list[AdministratorFile]:
        """The files that may make an administrator at this start."""
        found = []
        if self.initial_admin_file is not None:
            found.append(AdministratorFile(self.initial_admin_file, recovers=False))
        recovery = recovery_file(self.store_root)
        if recovery.exists():
            found.append(AdministratorFile(recovery, recovers=True))
        return found

    @property
    def users_file(self) -> InitialUsersFile | None:
        """The file of users who exist from the first start on."""
        path = self.initial_users_file
        return None if path is None else InitialUsersFile(path)

    @property
    def knows_replicas(self) -> bool:
        """Whether all who reach the listener for replicas have the key of one, or it is closed."""
        return not self.replication_enabled or self.curve_members not in (None, ANY)

    @property
    def members_bind_address(self) -> str:
        """`host:port` to bind for replicas of the log; port 0 uses a free port."""
        port = self.raft_port if self.raft_enabled else self.replication_port
        if port is None:
            after = self.listen_port + REPLICATION_PORT_SHIFT
            port = after if self.listen_port and after <= PORT_MAX else 0
        return self.zmq_address(port)

    @property
    def ack_on_flush(self) -> bool:
        """Does a copy count only when it is on the follower's disk?"""
        return self.sync_flush if self.ack_on is None else self.ack_on == FLUSHED
