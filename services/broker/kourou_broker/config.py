"""The settings of a broker, under RocketMQ's names.

Lives here: every key with its default, unit, range and sentence, and what follows from several keys.
May not live here: where values come from and how they are printed (kourou.service.settings), what
they do (each goes to the part it belongs to, in kourou_broker.wiring).

`seed` is the default that the design documents state, `rocketmq` that of RocketMQ 4.9; a reference
page shows them side by side. Keys that RocketMQ has and that do nothing here stand in
kourou.service.rocketmq_keys. Keys marked dynamic may be changed while the broker runs.

State: none; settings are read once.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kourou.errors import ConfigError
from kourou.model import limits
from kourou.service.command_line import Arguments
from kourou.service.rocketmq_keys import BROKER_KEYS
from kourou.service.setting import SAME, setting
from kourou.service.settings import Loaded, load_settings, render

INT_MAX = 2**31 - 1
ZMQ_PORT_SHIFT = 10_000
FIRST_PORT = 10_911
PORT_STEP = 20
FIRST_ADMIN_PORT = 18_081
HOUR_MS = 3_600_000

_NAME = re.compile(r"[A-Za-z0-9._-]{1,127}")


class FlushDiskType(StrEnum):
    """When a send is acknowledged: when it is in memory, or when it is on disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(StrEnum):
    """Who copies whom. SLAVE is served by another service."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


def _host_name() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    return name[:127] or "DEFAULT_BROKER"


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """All keys of `broker.conf`."""

    # -- who it is --------------------------------------------------------------------------------
    broker_cluster_name: str = setting(
        "DefaultCluster", "brokerClusterName", "The cluster this broker belongs to",
        seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    broker_name: str = setting(
        _host_name, "brokerName", "A leader and its followers share this name",
        seed=SAME, rocketmq=SAME, default_text="the host's name",
    )  # fmt: skip
    broker_id: int = setting(
        0, "brokerId", "0 is the leader, anything above a follower",
        low=0, high=2**63 - 1, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER, "brokerRole",
        "Whether a send waits for a follower (SYNC_MASTER) or not (ASYNC_MASTER)",
        seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    broker_permission: int = setting(
        6, "brokerPermission", "4 readable, 2 writable, 6 both: for all topics of this broker",
        low=0, high=7, dynamic=True, rocketmq=SAME,
    )  # fmt: skip
    region_id: str = setting(
        "DefaultRegion", "regionId", "Sent back with each message, for message traces",
        rocketmq=SAME,
    )  # fmt: skip

    # -- who finds it, and where ------------------------------------------------------------------
    namesrv_addr: str | None = setting(
        None, "namesrvAddr", "Name servers, host:port;host:port; port 9876 means ZeroMQ on 19876",
        seed=SAME, rocketmq=SAME, environment="NAMESRV_ADDR",
    )  # fmt: skip
    fetch_namesrv_addr: bool = setting(
        False, "fetchNamesrvAddrByAddressServer", "Ask an HTTP server for the name servers",
        seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    register_period_ms: int = setting(
        30_000, "registerNameServerPeriod", "How often it registers with every name server",
        unit="ms", low=10_000, high=60_000, rocketmq=SAME,
    )  # fmt: skip
    register_timeout_ms: int = setting(
        6_000, "registerBrokerTimeoutMills", "How long a registration may take",
        unit="ms", low=100, high=60_000, rocketmq=SAME,
    )  # fmt: skip
    listen_port: int = setting(
        FIRST_PORT, "listenPort", "RocketMQ's TCP port P; the others derive from it; 0 takes any",
        low=0, high=65_535, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    zmq_port: int | None = setting(
        None, "zmqPort", "Kourou's clients; empty is P + 10000", low=0, high=65_535,
    )  # fmt: skip
    bind_address: str = setting(
        "127.0.0.1", "bindAddress", "The address to listen on; off loopback only if insecureNetwork",
    )  # fmt: skip
    broker_ip1: str | None = setting(
        None, "brokerIP1", "The IP address that clients dial; empty is the one listened on",
        seed="the local address", rocketmq="the local address",
    )  # fmt: skip
    advertised_listeners: str | None = setting(
        None, "advertisedListeners",
        "Addresses by listener, name=host:port;name=host:port; empty is internal=brokerIP1:port",
    )  # fmt: skip
    insecure_network: bool = setting(
        False, "insecureNetwork", "Allow addresses open to the network, in clear text",
    )  # fmt: skip
    admin_enabled: bool = setting(
        True, "adminEnable", "Serve /healthz /readyz /metrics /config /statistics",
    )  # fmt: skip
    admin_port_wanted: int | None = setting(
        None, "adminPort", "Their port; 0 takes any; empty is 18081 for the first broker of a host",
        low=0, high=65_535,
    )  # fmt: skip
    admin_host: str = setting("127.0.0.1", "adminHost", "Their address")

    # -- topics and groups ------------------------------------------------------------------------
    auto_create_topic: bool = setting(
        True, "autoCreateTopicEnable", "A send creates its topic; production turns this off",
        dynamic=True, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    default_topic_queue_nums: int = setting(
        8, "defaultTopicQueueNums", "Most queues that a topic created by a send may have",
        low=1, high=limits.TOPIC_QUEUES_MAX, dynamic=True, rocketmq=SAME,
    )  # fmt: skip
    auto_create_group: bool = setting(
        True, "autoCreateSubscriptionGroup", "A consumer creates its group",
        dynamic=True, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    cluster_topic: bool = setting(
        True, "clusterTopicEnable", "A topic named as the cluster exists", rocketmq=SAME,
    )  # fmt: skip
    broker_topic: bool = setting(
        True, "brokerTopicEnable", "A topic named as the broker exists", rocketmq=SAME,
    )  # fmt: skip
    trace_topic: bool = setting(
        False, "traceTopicEnable", "The topic for message traces exists", rocketmq=SAME,
    )  # fmt: skip
    trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC", "msgTraceTopicName", "Its name", rocketmq=SAME,
    )  # fmt: skip
    trace_on: bool = setting(
        True, "traceOn", "Tell clients that their messages may be traced",
        dynamic=True, rocketmq=SAME,
    )  # fmt: skip
    group_subscription_policy: str = setting(
        "warn", "groupSubscriptionPolicy",
        "What happens to a member whose subscriptions differ from its group's",
        choices=("warn", "refuse"), dynamic=True,
    )  # fmt: skip
    notify_consumer_ids_changed: bool = setting(
        True, "notifyConsumerIdsChangedEnable", "Tell members of a group when it changes",
        dynamic=True, rocketmq=SAME,
    )  # fmt: skip
    client_expiry_ms: int = setting(
        120_000, "channelExpiredTimeout", "A client without a heartbeat for so long is forgotten",
        unit="ms", low=1_000, high=HOUR_MS, dynamic=True, rocketmq=SAME,
    )  # fmt: skip

    # -- sending ----------------------------------------------------------------------------------
    body_size_max: int = setting(
        limits.BODY_SIZE_BYTES_MAX, "maxMessageSize", "Largest message body", unit="bytes",
        low=1, high=limits.BODY_SIZE_BYTES_MAX, dynamic=True, seed="131072", rocketmq=SAME,
    )  # fmt: skip
    reject_transactions: bool = setting(
        False, "rejectTransactionMessage", "Refuse transactional messages",
        dynamic=True, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    deduplicate_retried_sends: bool = setting(
        True, "deduplicateRetriedSends",
        "A send that is repeated within its deadline is answered and not stored again",
        dynamic=True,
    )  # fmt: skip
    send_wait_ms_max: int = setting(
        200, "waitTimeMillsInSendQueue", "A send that waited longer is told that the broker is busy",
        unit="ms", low=1, high=60_000, dynamic=True, rocketmq=SAME,
    )  # fmt: skip
    inbox_inputs_max: int = setting(
        10_000, "sendThreadPoolQueueCapacity", "Requests beyond so many waiting are told the same",
        low=1, high=1_000_000, rocketmq=SAME,
    )  # fmt: skip

    # -- pulling ----------------------------------------------------------------------------------
    transfer_bytes_in_memory: int = setting(
        262_144, "maxTransferBytesOnMessageInMemory", "Bytes of one pull that reads from memory",
        unit="bytes", low=1, high=limits.FRAME_SIZE_BYTES_MAX, dynamic=True,
        seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    transfer_count_in_memory: int = setting(
        32, "maxTransferCountOnMessageInMemory", "Messages of one pull that reads from memory",
        low=1, high=limits.PULL_MESSAGES_MAX, dynamic=True, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    transfer_bytes_on_disk: int = setting(
        65_536, "maxTransferBytesOnMessageInDisk", "Bytes of one pull that reads from disk",
        unit="bytes", low=1, high=limits.FRAME_SIZE_BYTES_MAX, dynamic=True,
        seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    transfer_count_on_disk: int = setting(
        8, "maxTransferCountOnMessageInDisk", "Messages of one pull that reads from disk",
        low=1, high=limits.PULL_MESSAGES_MAX, dynamic=True, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    recent_percent: int = setting(
        40, "accessMessageInMemoryMaxRatio",
        "Messages within this share of the machine's memory from the log's end count as in memory",
        unit="percent", low=0, high=100, rocketmq=SAME,
    )  # fmt: skip
    pull_bytes_max: int = setting(
        limits.PULL_SIZE_BYTES_MAX, "maxPullBytes", "Bytes of one pull of Kourou's own clients",
        unit="bytes", low=65_536, high=limits.PULL_SIZE_BYTES_MAX, dynamic=True,
    )  # fmt: skip
    long_polling: bool = setting(
        True, "longPollingEnable", "Keep a pull waiting when there is nothing to read",
        dynamic=True, rocketmq=SAME,
    )  # fmt: skip
    hold_ms_max: int = setting(
        30_000, "longPollingTimeMillsMax", "Longest such wait, whatever a client asks",
        unit="ms", low=100, high=limits.DEADLINE_MS_MAX, dynamic=True,
    )  # fmt: skip
    progress_interval_ms: int = setting(
        5_000, "flushConsumerOffsetInterval", "How often the offsets of groups are recorded",
        unit="ms", low=100, high=600_000, dynamic=True, rocketmq=SAME,
    )  # fmt: skip
    query_max: int = setting(
        32, "defaultQueryMaxNum", "Most messages of one query by key",
        low=1, high=limits.QUERY_MESSAGES_MAX, dynamic=True, rocketmq=SAME,
    )  # fmt: skip
    property_filter: bool = setting(
        True, "enablePropertyFilter", "Allow filters in SQL92 over message properties",
        seed="false", rocketmq="false",
    )  # fmt: skip
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "messageDelayLevel",
        "The delays of levels 1, 2, 3 and so on; units s, m, h, d", seed=SAME, rocketmq=SAME,
    )  # fmt: skip

    # -- where the store lies ---------------------------------------------------------------------
    store_root: Path = setting(
        lambda: Path.home() / "store", "storePathRootDir", "The store's directory",
        seed=SAME, rocketmq=SAME, default_text="$HOME/store",
    )  # fmt: skip
    commit_log_path: Path | None = setting(
        None, "storePathCommitLog", "Empty is commitlog below the store's directory",
        seed="$HOME/store/commitlog", rocketmq="$HOME/store/commitlog",
    )  # fmt: skip
    consume_queue_path: Path | None = setting(
        None, "storePathConsumeQueue", "Empty is consumequeue below the store's directory",
        seed="$HOME/store/consumequeue",
    )  # fmt: skip
    index_path: Path | None = setting(
        None, "storePathIndex", "Empty is index below the store's directory",
        seed="$HOME/store/index",
    )  # fmt: skip
    checkpoint_path: Path | None = setting(
        None, "storeCheckpoint", "Empty is checkpoint below the store's directory",
        seed="$HOME/store/checkpoint",
    )  # fmt: skip
    abort_path: Path | None = setting(
        None, "abortFile", "Empty is abort below the store's directory",
        seed="$HOME/store/abort",
    )  # fmt: skip
    event_store_url: str | None = setting(
        None, "eventStoreUrl", "Database of control events (SQLAlchemy URL); empty is SQLite there",
    )  # fmt: skip
    read_mode: str = setting(
        "mmap", "readMode", "How records are read; pread survives a disk that fails under a mapping",
        choices=("mmap", "pread"),
    )  # fmt: skip
    segment_size_bytes: int = setting(
        limits.SEGMENT_SIZE_BYTES, "mappedFileSizeCommitLog", "Size of one commit log file",
        unit="bytes", low=4_096, high=INT_MAX, rocketmq=SAME,
        aliases=("mapedFileSizeCommitLog",),
    )  # fmt: skip
    queue_file_bytes: int = setting(
        limits.QUEUE_FILE_UNITS * limits.QUEUE_UNIT_BYTES, "mappedFileSizeConsumeQueue",
        "Size of one consume queue file, a multiple of 20", unit="bytes", low=20, high=INT_MAX,
        rocketmq=SAME, aliases=("mapedFileSizeConsumeQueue",),
    )  # fmt: skip
    message_index: bool = setting(
        True, "messageIndexEnable", "Index messages by their keys", seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    message_index_safe: bool = setting(
        False, "messageIndexSafe", "Flush the index with every checkpoint, so none is rebuilt",
        seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    index_slots: int = setting(
        limits.INDEX_SLOTS, "maxHashSlotNum", "Hash slots of one index file",
        low=1, high=INT_MAX, rocketmq=SAME,
    )  # fmt: skip
    index_entries: int = setting(
        limits.INDEX_ENTRIES, "maxIndexNum", "Entries of one index file",
        low=2, high=INT_MAX, rocketmq=SAME,
    )  # fmt: skip

    # -- when it is flushed -----------------------------------------------------------------------
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH, "flushDiskType",
        "A send is acknowledged when it is in memory (ASYNC_FLUSH) or on disk (SYNC_FLUSH)",
        seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    sync_flush_timeout_ms: int = setting(
        5_000, "syncFlushTimeout", "How long a send waits for the disk", unit="ms",
        low=1, high=limits.DEADLINE_MS_MAX, dynamic=True, rocketmq=SAME,
    )  # fmt: skip
    flush_interval_ms: int = setting(
        500, "flushIntervalCommitLog", "How often an asynchronous flush is considered",
        unit="ms", low=1, high=HOUR_MS, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    flush_least_pages: int = setting(
        4, "flushCommitLogLeastPages", "Fewest dirty pages for which it is done",
        unit="pages of 4 KiB", low=0, high=INT_MAX, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    flush_thorough_interval_ms: int = setting(
        10_000, "flushCommitLogThoroughInterval", "After so long it is done for any dirty page",
        unit="ms", low=1, high=HOUR_MS, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    flush_timed: bool = setting(
        True, "flushCommitLogTimed",
        "Flush by the clock only; false: also as soon as enough pages are dirty",
        seed="false", rocketmq=SAME,
    )  # fmt: skip
    queue_flush_interval_ms: int = setting(
        1_000, "flushIntervalConsumeQueue", "How often a flush of consume queues is considered",
        unit="ms", low=1, high=HOUR_MS, rocketmq=SAME,
    )  # fmt: skip
    queue_flush_least_pages: int = setting(
        2, "flushConsumeQueueLeastPages", "Fewest dirty pages for which it is done",
        unit="pages of 4 KiB", low=0, high=INT_MAX, rocketmq=SAME,
    )  # fmt: skip
    queue_flush_thorough_interval_ms: int = setting(
        60_000, "flushConsumeQueueThoroughInterval", "After so long it is done for any dirty page",
        unit="ms", low=1, high=HOUR_MS, rocketmq=SAME,
    )  # fmt: skip

    # -- how long it is kept ----------------------------------------------------------------------
    delete_when: str = setting(
        "04", "deleteWhen", "Hours at which expired files are deleted, 0 to 23, separated by ';'",
        dynamic=True, seed="4", rocketmq=SAME,
    )  # fmt: skip
    file_reserved_hours: int = setting(
        72, "fileReservedTime", "How long a file is kept after its last write", unit="hours",
        low=1, high=24 * 3_650, dynamic=True, seed="48", rocketmq=SAME,
    )  # fmt: skip
    disk_used_percent_max: int = setting(
        75, "diskMaxUsedSpaceRatio", "Above this, expired files are deleted at any hour",
        unit="percent", low=10, high=95, dynamic=True, seed=SAME, rocketmq=SAME,
    )  # fmt: skip
    clean_file_forcibly: bool = setting(
        True, "cleanFileForciblyEnable", "On a full disk delete files that have not expired",
        seed=SAME, rocketmq=SAME,
    )  # fmt: skip

    # -- followers --------------------------------------------------------------------------------
    ha_master_address: str | None = setting(
        None, "haMasterAddress", "For a follower: its leader; empty asks the name server",
        seed=SAME, rocketmq=SAME,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse what no single key can tell is wrong."""
        for key, name in (
            ("brokerName", self.broker_name),
            ("brokerClusterName", self.broker_cluster_name),
        ):
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{key}={name!r} is refused", hint="wanted: 1 to 127 letters, digits, . _ -"
                )
        if self.broker_role is BrokerRole.SLAVE or self.broker_id != 0:
            raise ConfigError(
                "this service serves leaders: brokerId=0, brokerRole=ASYNC_MASTER or SYNC_MASTER"
            )
        if self.broker_ip1 is not None and not _is_ip(self.broker_ip1):
            raise ConfigError(
                f"brokerIP1={self.broker_ip1!r} is no IP address",
                hint="names go into advertisedListeners",
            )
        if self.queue_file_bytes % limits.QUEUE_UNIT_BYTES:
            raise ConfigError("mappedFileSizeConsumeQueue must be a multiple of 20")
        self.delete_hours  # noqa: B018 - raises if malformed
        self.delay_levels_ms  # noqa: B018
        self.listeners("")
        self.name_server_addresses  # noqa: B018

    # -- what follows from several keys -----------------------------------------------------------

    @property
    def sync_flush(self) -> bool:
        """Does a send wait for the disk?"""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        """Name servers as they were written, one by one."""
        return tuple(part.strip() for part in (self.namesrv_addr or "").split(";") if part.strip())

    @property
    def zmq_bind_address(self) -> str:
        """`host:port` to bind for Kourou's clients; port 0 takes any."""
        port = self.zmq_port
        if port is None:
            port = self.listen_port + ZMQ_PORT_SHIFT if self.listen_port else 0
        if port > 65_535:
            raise ConfigError(f"listenPort={self.listen_port} is too high for zmqPort to follow it")
        host = self.bind_address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def broker_ip(self) -> str:
        """The IP address that clients dial and that stands in stored records."""
        if self.broker_ip1 is not None:
            return self.broker_ip1
        if _is_ip(self.bind_address) and not ipaddress.ip_address(self.bind_address).is_unspecified:
            return self.bind_address
        return _local_address()

    def store_port(self, zmq_port: int) -> int:
        """The port in stored records and message ids: RocketMQ's P, as far as it is known."""
        return self.listen_port or (
            zmq_port - ZMQ_PORT_SHIFT if zmq_port > ZMQ_PORT_SHIFT else zmq_port
        )

    def listeners(self, dial: str) -> Mapping[str, str]:
        """What the name server is told: `zmq:<listener>` -> the address to dial."""
        found = {"zmq:internal": dial}
        for entry in (self.advertised_listeners or "").split(";"):
            if not entry.strip():
                continue
            name, equals, address = entry.strip().partition("=")
            if not equals or not _NAME.fullmatch(name) or not _is_address(address):
                raise ConfigError(
                    f"advertisedListeners: {entry.strip()!r} is refused", hint="name=host:port"
                )
            found[f"zmq:{name}"] = address
        return found

    @property
    def admin_port(self) -> int | None:
        """Where the admin pages are served; None if they are not."""
        if not self.admin_enabled:
            return None
        if self.admin_port_wanted is not None:
            return self.admin_port_wanted
        place, odd = divmod(self.listen_port - FIRST_PORT, PORT_STEP)
        return FIRST_ADMIN_PORT + place if not odd and 0 <= place < 100 else 0

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """The hours of deleteWhen."""
        hours = []
        for text in self.delete_when.split(";"):
            if not re.fullmatch(r"\s*[0-9]{1,2}\s*", text) or int(text) > 23:
                raise ConfigError(f"deleteWhen={self.delete_when!r} is refused", hint="04 or 02;14")
            hours.append(int(text))
        return tuple(hours)

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delays of messageDelayLevel; the first is level 1's."""
        units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
        delays = []
        for text in self.message_delay_level.split():
            if not re.fullmatch(r"[0-9]{1,6}[smhd]", text):
                raise ConfigError(f"messageDelayLevel: {text!r} is refused", hint="for example 30s")
            delays.append(int(text[:-1]) * units[text[-1]])
        if not delays:
            raise ConfigError("messageDelayLevel has no level")
        return tuple(delays)

    def render(self) -> str:
        """`key=value` lines of every key."""
        return render(self, explained=False)

    def print_to_stdout(self, *, explained: bool) -> None:
        """What `-m` (explained) and `-p` print."""
        sys.stdout.write(render(self, explained=explained))


def load_broker_settings(
    arguments: Arguments, environment: Mapping[str, str]
) -> Loaded[BrokerSettings]:
    """Settings from the command line, the environment, the file and the defaults."""
    return load_settings(
        BrokerSettings,
        arguments=arguments.settings,
        environment=environment,
        file=arguments.file,
        inert=BROKER_KEYS,
    )


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(colon and host and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= 65_535)


def _local_address() -> str:
    """The address this machine is reached at: that of the route to elsewhere; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:  # no route: this machine is alone
            return "127.0.0.1"
        return str(probe.getsockname()[0])
