"""The settings of clients and producers, with RocketMQ's names.

Messages may have up to 4 MiB, because a lower default would break existing RocketMQ clients.
"""

# ruff: noqa: RUF009 - setting() makes dataclass fields, as dataclasses.field() does

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from kourou.client.session.discovery import LIST_REFRESH_MS
from kourou.client.settings import forms, inert
from kourou.client.settings.consumer_settings import ConsumerSettings as ConsumerSettings
from kourou.client.settings.consumer_settings import CorruptPolicy as CorruptPolicy
from kourou.client.settings.consumer_settings import PullConsumerSettings as PullConsumerSettings
from kourou.client.settings.declaration import FUNCTION, HOUR_MS, InertKey, Settings, setting
from kourou.client.settings.forms import consume_timestamp_ms as consume_timestamp_ms
from kourou.errors import ConfigError
from kourou.model import limits
from kourou.model.message import DELAY_LEVELS, parse_delay_levels
from kourou.model.names import AUTO_CREATE_TOPIC, TRACE_TOPIC
from kourou.telemetry.tracing_setup import ROOTS_PER_S_MAX
from kourou.transport.busy_poll import BUSY_POLL_US

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DAY_MS = 24 * HOUR_MS
NEVER = 2**31 - 1
"""The value that users of RocketMQ write for "never"."""

ZLIB_BEST = zlib.Z_BEST_COMPRESSION


class CompressionKind(StrEnum):
    """The compression of bodies (`rocketmq.message.compressType`)."""

    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


@dataclass(frozen=True, kw_only=True)
class ClientSettings(Settings):
    """Settings that producers and consumers of one client share (RocketMQ `ClientConfig`)."""

    inert_keys: ClassVar[Mapping[str, InertKey]] = inert.CLIENT_KEYS

    namesrv_addr: str = setting(
        "", "Name servers as host:port;host:port; empty: see discovery.", rocketmq="namesrvAddr"
    )
    namesrv_list_url: str = setting(
        "",
        "HTTP address of a name server list; empty: that way of discovery is off.",
        form=forms.URL,
    )
    namesrv_list_interval_ms: int = setting(
        LIST_REFRESH_MS,
        "How often the HTTP list is read.",
        unit="ms",
        minimum=1_000,
        maximum=DAY_MS,
    )
    client_ip: str = setting(
        "",
        "This machine's address in client ids and messages; empty: detected.",
        rocketmq="clientIP",
        form=forms.ADDRESS,
    )
    instance_name: str = setting(
        "DEFAULT",
        "Part of the client id; DEFAULT becomes unique for each client.",
        rocketmq="instanceName",
    )
    unit_name: str = setting("", "Last part of the client id.", rocketmq="unitName")
    local_offsets_dir: str = setting(
        "",
        "Where broadcasting consumers keep their offsets; empty: ~/.rocketmq_offsets.",
        rocketmq="localOffsetStoreDir",
    )
    callback_threads: int = setting(
        4,
        "Threads that run the callbacks of the blocking client's send_async.",
        rocketmq="clientCallbackExecutorThreads",
        minimum=1,
        maximum=1_024,
    )
    poll_name_server_interval_ms: int = setting(
        30_000,
        "How often routes are refreshed.",
        rocketmq="pollNameServerInterval",
        unit="ms",
        minimum=10,
        maximum=HOUR_MS,
    )
    heartbeat_broker_interval_ms: int = setting(
        30_000,
        "Interval of heartbeats; brokers remove a client that is silent for channelExpiredTimeout.",
        rocketmq="heartbeatBrokerInterval",
        unit="ms",
        minimum=10,
        maximum=HOUR_MS,
    )
    persist_consumer_offset_interval_ms: int = setting(
        5_000,
        "How often consumers commit their offsets.",
        rocketmq="persistConsumerOffsetInterval",
        unit="ms",
        minimum=10,
        maximum=HOUR_MS,
    )
    rebalance_interval_ms: int = setting(
        20_000,
        "How often queues are shared out again without a notice.",
        rocketmq="rebalanceInterval",
        unit="ms",
        minimum=10,
        maximum=HOUR_MS,
    )
    busy_poll_us: int = setting(
        BUSY_POLL_US,
        "How long an asynchronous client's event loop looks for a reply before it sleeps, while "
        "replies come faster than that; 0: it sleeps at once.",
        unit="us",
        minimum=0,
        maximum=10_000,
    )
    curve_key_file: str = setting(
        "",
        "This client's pair of CURVE keys, NAME.key_secret or NAME.ring of `kourou keys make`; "
        "empty: as KOUROU_CURVE_KEY_FILE says, else clear text.",
    )
    curve_server_key: str = setting(
        "",
        "The public keys of name servers and brokers: a file for all of them, or a folder where "
        "each is HOST.key or says its addresses; empty: as KOUROU_CURVE_SERVER_KEY says, else "
        "those in the ring.",
    )
    tracing: bool = setting(
        True, "Make OpenTelemetry spans if the application or its environment has set that up."
    )
    trace_otlp_endpoint: str = setting(
        "",
        "Trace collector, as http://host:4318; empty: from OTEL_… variables, else none.",
        form=forms.URL,
    )
    trace_sample_ratio: float = setting(
        1.0,
        "Which share of the traces that begin here is recorded; OTEL_TRACES_SAMPLER wins.",
        minimum=0,
        maximum=1,
    )
    trace_roots_per_s: int = setting(
        ROOTS_PER_S_MAX,
        "Most traces that begin here in a second where a ratio is below 1; 0: any number.",
        unit="traces a second",
        minimum=0,
        maximum=1_000_000,
    )
    request_timeout_ms: int = setting(
        3_000,
        "Deadline of a request that has none of its own.",
        rocketmq="mqClientApiTimeout",
        unit="ms",
        minimum=1,
        maximum=limits.DEADLINE_MS_MAX,
    )
    log_messages: bool = setting(
        False, "Log every outcome of a send and everything consumed at INFO instead of DEBUG."
    )

    @property
    def message_log_level(self) -> int:
        """The level of log lines about single messages."""
        return logging.INFO if self.log_messages else logging.DEBUG


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(Settings):
    """Settings of a producer (RocketMQ `DefaultMQProducer`)."""

    inert_keys: ClassVar[Mapping[str, InertKey]] = inert.PRODUCER_KEYS

    producer_group: str = setting(
        DEFAULT_PRODUCER_GROUP,
        "Name of the set of producers this one belongs to.",
        rocketmq="producerGroup",
    )
    create_topic_key: str = setting(
        AUTO_CREATE_TOPIC, "Topic whose queues a new topic copies.", rocketmq="createTopicKey"
    )
    default_topic_queue_nums: int = setting(
        4,
        "Queues of a topic that the first send creates; brokers have their own maximum.",
        rocketmq="defaultTopicQueueNums",
        minimum=1,
        maximum=limits.TOPIC_QUEUES_MAX,
    )
    send_timeout_ms: int = setting(
        10_000,
        "Time for a send with all its attempts.",
        rocketmq="sendMsgTimeout",
        unit="ms",
        minimum=1,
        maximum=limits.DEADLINE_MS_MAX,
    )
    retry_times_when_send_failed: int = setting(
        2,
        "Attempts after the first one.",
        rocketmq="retryTimesWhenSendFailed",
        minimum=0,
        maximum=100,
    )
    retry_another_broker_when_not_store_ok: bool = setting(
        False,
        "Send to another broker if a message is stored but not flushed or replicated as wanted.",
        rocketmq="retryAnotherBrokerWhenNotStoreOK",
    )
    message_trace: bool = setting(
        False,
        "Write a trace of each message to the trace topic, as RocketMQ's clients do.",
        rocketmq="enableMsgTrace",
    )
    message_trace_topic: str = setting(
        TRACE_TOPIC, "Where message traces are written.", rocketmq="customizedTraceTopic"
    )
    send_latency_fault_enable: bool = setting(
        False,
        "Avoid brokers for a while that were slow or failed.",
        rocketmq="sendLatencyFaultEnable",
    )
    delay_levels: str = setting(
        DELAY_LEVELS,
        "The brokers' messageDelayLevel, in which the `delay` of a send is looked up.",
    )
    compress_over_bytes: int = setting(
        limits.COMPRESS_OVER_BYTES,
        "Bodies of this size and more are compressed.",
        rocketmq="compressMsgBodyOverHowmuch",
        unit="bytes",
        minimum=0,
        maximum=NEVER,
    )
    compression: CompressionKind = setting(
        CompressionKind.ZLIB, "How bodies are compressed.", rocketmq="compressType"
    )
    compression_level: int = setting(
        5,
        "Higher is smaller and slower; ZLIB has 0 to 9, ZSTD 0 to 22, LZ4 none.",
        rocketmq="compressLevel",
        minimum=0,
        maximum=22,
    )
    message_size_bytes_max: int = setting(
        limits.BODY_SIZE_BYTES_MAX,
        "Larger bodies are refused before they are sent.",
        rocketmq="maxMessageSize",
        unit="bytes",
        minimum=1,
        maximum=limits.BODY_SIZE_BYTES_MAX,
    )
    unsent_count_max: int = setting(
        65_536,
        "Messages that wait for an answer before a send has to wait.",
        minimum=1,
        maximum=NEVER,
    )
    unsent_size_bytes_max: int = setting(
        64 * 1024 * 1024,
        "Their bytes, likewise.",
        unit="bytes",
        minimum=limits.BODY_SIZE_BYTES_MAX,
        maximum=1 << 40,
    )
    transaction_check_listener: Callable[..., Any] | None = setting(
        None,
        "Answers check-backs of half messages; required for transactions.",
        rocketmq="transactionCheckListener",
        form=FUNCTION,
    )
    wait_for_transaction_end: bool = setting(
        True,
        "A transaction's block ends when its broker has confirmed the commit or rollback.",
    )
    check_threads_min: int = setting(
        1,
        "Minimum number of threads for check-backs.",
        rocketmq="checkThreadPoolMinSize",
        minimum=1,
        maximum=1_000,
    )
    check_threads_max: int = setting(
        1,
        "Maximum number of threads for check-backs.",
        rocketmq="checkThreadPoolMaxSize",
        minimum=1,
        maximum=1_000,
    )
    check_requests_max: int = setting(
        2_000,
        "Check-backs that may wait for a thread.",
        rocketmq="checkRequestHoldMax",
        minimum=1,
        maximum=NEVER,
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
