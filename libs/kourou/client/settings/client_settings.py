"""The settings of clients and producers, with RocketMQ's names.

Messages may have up to 4 MiB, because a lower default would break existing RocketMQ clients.
"""

from __future__ import annotations

import ipaddress
import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from kourou.client.session.discovery import LIST_REFRESH_MS
from kourou.client.settings.consumer_settings import ConsumerSettings as ConsumerSettings
from kourou.client.settings.consumer_settings import CorruptPolicy as CorruptPolicy
from kourou.client.settings.consumer_settings import PullConsumerSettings as PullConsumerSettings
from kourou.client.settings.consumer_settings import consume_timestamp_ms as consume_timestamp_ms
from kourou.errors import ConfigError
from kourou.model import limits
from kourou.model.limits import ROOTS_PER_S_MAX
from kourou.model.message import DELAY_LEVELS, parse_delay_levels
from kourou.model.names import AUTO_CREATE_TOPIC, TRACE_TOPIC
from kourou.model.refused_settings import refused_setting
from kourou.model.units import DAY_MS, HOUR_MS
from kourou.runtime import BUSY_POLL_US
from kourou.settings.declaration import (
    FUNCTION,
    SAME,
    InertKey,
    Settings,
    ValueForm,
    environment_name,
    missing_setting,
    setting,
)
from kourou.settings.sources import read_settings_file

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
NEVER = 2**31 - 1
"""The value that users of RocketMQ write for "never"."""

ZLIB_BEST = zlib.Z_BEST_COMPRESSION


class CompressionKind(StrEnum):
    """The compression of bodies (`rocketmq.message.compressType`)."""

    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_http(text: str) -> bool:
    return text.startswith(("http://", "https://"))


ADDRESS = ValueForm("an IPv4 or IPv6 address", _is_ip)
URL = ValueForm("an http:// or https:// address", _is_http)

# -- RocketMQ's keys that have no effect -----------------------------------------------------------

CLIENT_KEYS: Mapping[str, InertKey] = {
    "accessChannel": InertKey("LOCAL", "it selects a vendor's cloud"),
    "decodeDecompressBody": InertKey("true", "bodies are decompressed when they are looked at"),
    "decodeReadBody": InertKey("true", "bodies are read when they are looked at"),
    "enableStreamRequestType": InertKey("false", "requests have one type"),
    "language": InertKey("JAVA", "brokers treat all languages alike"),
    "namespace": InertKey(
        "", "give topics and groups their full names, namespace%name", refused=True
    ),
    "namespaceInitialized": InertKey("false", "there are no namespaces"),
    "unitMode": InertKey("false", "brokers make no difference between units; unitName counts"),
    "vipChannelEnabled": InertKey("false", "a broker has one port for clients"),
}
"""RocketMQ 4.9 `ClientConfig`."""

PRODUCER_KEYS: Mapping[str, InertKey] = {
    "latencyMax": InertKey("", "the table of latencies is fixed"),
    "notAvailableDuration": InertKey("", "the table of latencies is fixed"),
    "retryTimesWhenSendAsyncFailed": InertKey(
        "2", "retryTimesWhenSendFailed counts for all ways of sending"
    ),
    "sendMessageWithVIPChannel": InertKey("false", "a broker has one port for clients"),
    "unitMode": InertKey("false", "brokers make no difference between units; unitName counts"),
}
"""RocketMQ 4.9 `DefaultMQProducer`."""

# -- settings --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClientSettings(Settings):
    """Settings that producers and consumers of one client share (RocketMQ `ClientConfig`)."""

    inert_keys: ClassVar[Mapping[str, InertKey]] = CLIENT_KEYS

    namesrv_addr: str = setting(
        "",
        "namesrvAddr",
        "Name servers as host:port;host:port; empty: see discovery.",
        seed=SAME,
        rocketmq=SAME,
    )
    namesrv_list_url: str = setting(
        "",
        "namesrvListUrl",
        "HTTP address of a name server list; empty: that way of discovery is off.",
        form=URL,
    )
    namesrv_list_interval_ms: int = setting(
        LIST_REFRESH_MS,
        "namesrvListIntervalMs",
        "How often the HTTP list is read.",
        unit="ms",
        low=1_000,
        high=DAY_MS,
        seed=SAME,
    )
    client_ip: str = setting(
        "",
        "clientIP",
        "This machine's address in client ids and messages; empty: detected.",
        form=ADDRESS,
        seed="the local address",
        rocketmq="the local address",
    )
    instance_name: str = setting(
        "DEFAULT",
        "instanceName",
        "Part of the client id; DEFAULT becomes unique for each client.",
        seed=SAME,
        rocketmq=SAME,
    )
    unit_name: str = setting(
        "",
        "unitName",
        "Last part of the client id.",
        rocketmq=SAME,
    )
    local_offsets_dir: str = setting(
        "",
        "localOffsetStoreDir",
        "Where broadcasting consumers keep their offsets; empty: ~/.rocketmq_offsets.",
        rocketmq="~/.rocketmq_offsets",
    )
    callback_threads: int = setting(
        4,
        "clientCallbackExecutorThreads",
        "Threads that run the callbacks of the blocking client's send_async.",
        low=1,
        high=1_024,
        seed=SAME,
        rocketmq="one a processor",
    )
    poll_name_server_interval_ms: int = setting(
        30_000,
        "pollNameServerInterval",
        "How often routes are refreshed.",
        unit="ms",
        low=10,
        high=HOUR_MS,
        seed=SAME,
        rocketmq=SAME,
    )
    heartbeat_broker_interval_ms: int = setting(
        30_000,
        "heartbeatBrokerInterval",
        "Interval of heartbeats; brokers remove a client that is silent for channelExpiredTimeout.",
        unit="ms",
        low=10,
        high=HOUR_MS,
        seed=SAME,
        rocketmq=SAME,
    )
    persist_consumer_offset_interval_ms: int = setting(
        5_000,
        "persistConsumerOffsetInterval",
        "How often consumers commit their offsets.",
        unit="ms",
        low=10,
        high=HOUR_MS,
        seed=SAME,
        rocketmq=SAME,
    )
    rebalance_interval_ms: int = setting(
        20_000,
        "rebalanceInterval",
        "How often queues are shared out again without a notice.",
        unit="ms",
        low=10,
        high=HOUR_MS,
        rocketmq=SAME,
    )
    busy_poll_us: int = setting(
        BUSY_POLL_US,
        "busyPollUs",
        "How long an asynchronous client's event loop looks for a reply before it sleeps, while "
        "replies come faster than that; 0: it sleeps at once.",
        unit="us",
        low=0,
        high=10_000,
    )
    curve_key_file: str = setting(
        "",
        "curveKeyFile",
        "This client's pair of CURVE keys, NAME.key_secret or NAME.ring of `kourou keys make`; "
        "empty: as KOUROU_CURVE_KEY_FILE says, else clear text.",
        secret_file=True,
    )
    curve_server_key: str = setting(
        "",
        "curveServerKey",
        "The public keys of name servers and brokers: a file for all of them, or a folder where "
        "each is HOST.key or says its addresses; empty: as KOUROU_CURVE_SERVER_KEY says, else "
        "those in the ring.",
    )
    on_behalf_of: str = setting(
        "",
        "onBehalfOf",
        "The user by whose rights brokers decide this client's requests; they accept it only from "
        "users with the role console.",
    )
    tracing: bool = setting(
        True,
        "tracing",
        "Make OpenTelemetry spans if the application or its environment has set that up.",
    )
    trace_otlp_endpoint: str = setting(
        "",
        "traceOtlpEndpoint",
        "Trace collector, as http://host:4318; empty: from OTEL_… variables, else none.",
        form=URL,
    )
    trace_sample_ratio: float = setting(
        1.0,
        "traceSampleRatio",
        "Which share of the traces that begin here is recorded; OTEL_TRACES_SAMPLER wins.",
        low=0,
        high=1,
    )
    trace_roots_per_s: int = setting(
        ROOTS_PER_S_MAX,
        "traceRootsPerS",
        "Most traces that begin here in a second where a ratio is below 1; 0: any number.",
        unit="traces a second",
        low=0,
        high=1_000_000,
    )
    request_timeout_ms: int = setting(
        3_000,
        "mqClientApiTimeout",
        "Deadline of a request that has none of its own.",
        unit="ms",
        low=1,
        high=limits.DEADLINE_MS_MAX,
        rocketmq=SAME,
    )
    log_messages: bool = setting(
        False,
        "logMessages",
        "Log every outcome of a send and everything consumed at INFO instead of DEBUG.",
    )

    @property
    def message_log_level(self) -> int:
        """The level of log lines about single messages."""
        return logging.INFO if self.log_messages else logging.DEBUG


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(Settings):
    """Settings of a producer (RocketMQ `DefaultMQProducer`)."""

    inert_keys: ClassVar[Mapping[str, InertKey]] = PRODUCER_KEYS

    producer_group: str = setting(
        DEFAULT_PRODUCER_GROUP,
        "producerGroup",
        "Name of the set of producers this one belongs to.",
        seed=SAME,
        rocketmq=SAME,
    )
    create_topic_key: str = setting(
        AUTO_CREATE_TOPIC,
        "createTopicKey",
        "Topic whose queues a new topic copies.",
        seed=SAME,
        rocketmq=SAME,
    )
    default_topic_queue_nums: int = setting(
        4,
        "defaultTopicQueueNums",
        "Queues of a topic that the first send creates; brokers have their own maximum.",
        low=1,
        high=limits.TOPIC_QUEUES_MAX,
        seed=SAME,
        rocketmq=SAME,
    )
    send_timeout_ms: int = setting(
        10_000,
        "sendMsgTimeout",
        "Time for a send with all its attempts.",
        unit="ms",
        low=1,
        high=limits.DEADLINE_MS_MAX,
        seed=SAME,
        rocketmq="3000",
    )
    retry_times_when_send_failed: int = setting(
        2,
        "retryTimesWhenSendFailed",
        "Attempts after the first one.",
        low=0,
        high=100,
        seed=SAME,
        rocketmq=SAME,
    )
    retry_another_broker_when_not_store_ok: bool = setting(
        False,
        "retryAnotherBrokerWhenNotStoreOK",
        "Send to another broker if a message is stored but not flushed or replicated as wanted.",
        seed=SAME,
        rocketmq=SAME,
    )
    message_trace: bool = setting(
        False,
        "enableMsgTrace",
        "Write a trace of each message to the trace topic, as RocketMQ's clients do.",
        rocketmq=SAME,
    )
    message_trace_topic: str = setting(
        TRACE_TOPIC,
        "customizedTraceTopic",
        "Where message traces are written.",
        rocketmq=SAME,
    )
    send_latency_fault_enable: bool = setting(
        False,
        "sendLatencyFaultEnable",
        "Avoid brokers for a while that were slow or failed.",
        rocketmq=SAME,
    )
    delay_levels: str = setting(
        DELAY_LEVELS,
        "delayLevels",
        "The brokers' messageDelayLevel, in which the `delay` of a send is looked up.",
    )
    compress_over_bytes: int = setting(
        limits.COMPRESS_OVER_BYTES,
        "compressMsgBodyOverHowmuch",
        "Bodies of this size and more are compressed.",
        unit="bytes",
        low=0,
        high=NEVER,
        seed=SAME,
        rocketmq=SAME,
    )
    compression: CompressionKind = setting(
        CompressionKind.ZLIB,
        "compressType",
        "How bodies are compressed.",
        rocketmq=SAME,
    )
    compression_level: int = setting(
        5,
        "compressLevel",
        "Higher is smaller and slower; ZLIB has 0 to 9, ZSTD 0 to 22, LZ4 none.",
        low=0,
        high=22,
        rocketmq=SAME,
    )
    message_size_bytes_max: int = setting(
        limits.BODY_SIZE_BYTES_MAX,
        "maxMessageSize",
        "Larger bodies are refused before they are sent.",
        unit="bytes",
        low=1,
        high=limits.BODY_SIZE_BYTES_MAX,
        seed="131072",
        rocketmq=SAME,
    )
    pending_count_max: int = setting(
        65_536,
        "pendingCountMax",
        "Sends that wait for an answer before another send has to wait; a batch is one.",
        aliases=("unsentCountMax",),
        low=1,
        high=NEVER,
    )
    pending_size_bytes_max: int = setting(
        64 * 1024 * 1024,
        "pendingSizeBytesMax",
        "Their bytes, likewise.",
        aliases=("unsentSizeBytesMax",),
        unit="bytes",
        low=limits.BODY_SIZE_BYTES_MAX,
        high=1 << 40,
    )
    transaction_check_listener: Callable[..., Any] | None = setting(
        None,
        "transactionCheckListener",
        "Answers check-backs of half messages; required for transactions.",
        form=FUNCTION,
        seed=SAME,
        rocketmq=SAME,
    )
    wait_for_transaction_end: bool = setting(
        True,
        "waitForTransactionEnd",
        "A transaction's block ends when its broker has confirmed the commit or rollback.",
    )
    check_threads_min: int = setting(
        1,
        "checkThreadPoolMinSize",
        "Minimum number of threads for check-backs.",
        low=1,
        high=1_000,
        seed=SAME,
        rocketmq=SAME,
    )
    check_threads_max: int = setting(
        1,
        "checkThreadPoolMaxSize",
        "Maximum number of threads for check-backs.",
        low=1,
        high=1_000,
        seed=SAME,
        rocketmq=SAME,
    )
    check_requests_max: int = setting(
        2_000,
        "checkRequestHoldMax",
        "Check-backs that may wait for a thread.",
        low=1,
        high=NEVER,
        seed=SAME,
        rocketmq=SAME,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_delay_levels(self.delay_levels)
        if self.compression is CompressionKind.ZLIB and self.compression_level > ZLIB_BEST:
            raise ConfigError(
                f"compression_level (compressLevel) is {self.compression_level}; "
                f"for ZLIB it must be between 0 and {ZLIB_BEST}"
            )

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delays of `delay_levels` in ms; the first is that of level 1."""
        return parse_delay_levels(self.delay_levels)


# -- sources ---------------------------------------------------------------------------------------

KINDS: tuple[type[Settings], ...] = (
    ClientSettings,
    ProducerSettings,
    ConsumerSettings,
    PullConsumerSettings,
)
SettingsT = TypeVar("SettingsT", bound=Settings)


def load_settings(
    kind: type[SettingsT],
    values: Mapping[str, Any] | None = None,
    *,
    file: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
) -> SettingsT:
    """Return settings of one class from these sources; keys are RocketMQ's, or in its style.

    `file` is in the properties format. Texts in `values` and `environment` are parsed as in the
    file. Raises ConfigError, which names the source and the key, for invalid settings.
    """
    found: dict[str, Any] = {}
    if file is not None:
        found |= _of_kind(kind, read_settings_file(Path(file)), str(file))
    for key in kind.by_key():
        text = (environment or {}).get(environment_name(key))
        if text is not None:
            found[key] = text
    found |= _of_kind(kind, values or {}, "the given values")
    return kind.from_rocketmq(**found)


def _of_kind(kind: type[Settings], given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the settings for `kind`. Raises ConfigError for a key that no class has."""
    own = kind.by_key()
    chosen: dict[str, Any] = {}
    for key, value in given.items():
        if refused_setting(key) is not None or key in own or key in kind.inert_keys:
            chosen[key] = value
        elif not any(key in other.by_key() or key in other.inert_keys for other in KINDS):
            known = {known: one for other in KINDS for known, one in other.by_key().items()}
            raise missing_setting(source, key, known)
    return chosen
