"""What can be set on a client, and RocketMQ's names for it.

Lives here: four frozen dataclasses, their defaults, units, ranges and one sentence each, and
RocketMQ's names for them. May not live here: what the settings do.

Defaults are the seeds', except where a number would break today's clients: messages up to 4 MiB
(the seeds say 128 KiB).

State: none.
"""

# ruff: noqa: RUF009 - setting() makes dataclass fields, as dataclasses.field() does

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kourou.client.allocation import Allocation, Averagely
from kourou.client.discovery import LIST_REFRESH_MS
from kourou.client.setting import Settings, setting
from kourou.errors import ConfigError
from kourou.model import limits
from kourou.model.names import AUTO_CREATE_TOPIC
from kourou.model.queue import MessageQueue
from kourou.model.subscription import ConsumeFromWhere, MessageModel

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
HOUR_MS = 3_600_000


class CompressionKind(StrEnum):
    """How bodies are compressed (`rocketmq.message.compressType`)."""

    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


class CorruptPolicy(StrEnum):
    """What a consumer does at a message that fails its check at the broker."""

    SKIP = "SKIP"
    HOLD = "HOLD"


@dataclass(frozen=True, kw_only=True)
class ClientSettings(Settings):
    """What producers and consumers of one client share (RocketMQ `ClientConfig`)."""

    namesrv_addr: str = setting(
        "", "Name servers as host:port;host:port; empty: see discovery.", rocketmq="namesrvAddr"
    )
    namesrv_list_url: str = setting(
        "", "HTTP address of a name server list; empty: that way of discovery is off."
    )
    namesrv_list_interval_ms: int = setting(
        LIST_REFRESH_MS, "How often the HTTP list is asked.", minimum=1_000
    )
    client_ip: str = setting(
        "", "This machine's address in client ids; empty: found out.", rocketmq="clientIP"
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
        "Threads that run the callbacks of send_async.",
        rocketmq="clientCallbackExecutorThreads",
        minimum=1,
        maximum=1_024,
    )
    poll_name_server_interval_ms: int = setting(
        30_000, "How often routes are refreshed.", rocketmq="pollNameServerInterval", minimum=10
    )
    heartbeat_broker_interval_ms: int = setting(
        30_000, "How often brokers hear from us.", rocketmq="heartbeatBrokerInterval", minimum=10
    )
    persist_consumer_offset_interval_ms: int = setting(
        5_000,
        "How often consumers commit their offsets.",
        rocketmq="persistConsumerOffsetInterval",
        minimum=10,
    )
    rebalance_interval_ms: int = setting(
        20_000,
        "How often queues are shared out again without a notice.",
        rocketmq="rebalanceInterval",
        minimum=10,
    )
    tracing: bool = setting(
        True, "Make OpenTelemetry spans if the application or its environment has set that up."
    )
    trace_otlp_endpoint: str = setting(
        "", "Where spans go, as http://host:4318; empty: as OTEL_… variables say, else nowhere."
    )
    trace_sample_ratio: float = setting(
        1.0,
        "Which share of the traces that begin here is recorded; OTEL_TRACES_SAMPLER wins.",
        minimum=0,
        maximum=1,
    )
    request_timeout_ms: int = setting(
        3_000,
        "Deadline of a request that has none of its own.",
        rocketmq="mqClientApiTimeout",
        minimum=1,
        maximum=limits.DEADLINE_MS_MAX,
    )
    log_messages: bool = setting(
        False, "Log every outcome of a send and everything consumed at INFO instead of DEBUG."
    )

    @property
    def message_log_level(self) -> int:
        """The level of the lines about single messages."""
        return logging.INFO if self.log_messages else logging.DEBUG


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(Settings):
    """How messages are sent (RocketMQ `DefaultMQProducer`)."""

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
        "Queues of a topic that the first send creates.",
        rocketmq="defaultTopicQueueNums",
        minimum=1,
        maximum=65_535,
    )
    send_timeout_ms: int = setting(
        10_000,
        "Time for a send with all its attempts.",
        rocketmq="sendMsgTimeout",
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
        "Send once more elsewhere when a message is stored but not yet safe.",
        rocketmq="retryAnotherBrokerWhenNotStoreOK",
    )
    send_latency_fault_enable: bool = setting(
        False,
        "Avoid brokers for a while that were slow or failed.",
        rocketmq="sendLatencyFaultEnable",
    )
    compress_over_bytes: int = setting(
        limits.COMPRESS_OVER_BYTES,
        "Bodies of this size and more are compressed.",
        rocketmq="compressMsgBodyOverHowmuch",
        minimum=1,
    )
    compression: CompressionKind = setting(
        CompressionKind.ZLIB, "How bodies are compressed.", rocketmq="compressType"
    )
    compression_level: int = setting(
        5, "Compression level; higher is smaller and slower.", rocketmq="compressLevel", minimum=0
    )
    message_size_bytes_max: int = setting(
        limits.BODY_SIZE_BYTES_MAX,
        "Bodies above this are refused before they travel.",
        rocketmq="maxMessageSize",
        minimum=1,
        maximum=limits.BODY_SIZE_BYTES_MAX,
    )
    unsent_count_max: int = setting(
        65_536, "Messages that wait for an answer before a send has to wait.", minimum=1
    )
    unsent_size_bytes_max: int = setting(
        64 * 1024 * 1024, "Their bytes, likewise.", minimum=limits.BODY_SIZE_BYTES_MAX
    )
    transaction_check_listener: Callable[..., Any] | None = setting(
        None,
        "Answers a broker's question about a half message; plain sends do without.",
        rocketmq="transactionCheckListener",
        without_effect=True,
    )
    check_threads_min: int = setting(
        1,
        "Threads that answer such questions, at least.",
        rocketmq="checkThreadPoolMinSize",
        minimum=1,
        without_effect=True,
    )
    check_threads_max: int = setting(
        1,
        "Threads that answer such questions, at most.",
        rocketmq="checkThreadPoolMaxSize",
        minimum=1,
        without_effect=True,
    )
    check_requests_max: int = setting(
        2_000,
        "Questions that may wait for a thread.",
        rocketmq="checkRequestHoldMax",
        minimum=1,
        without_effect=True,
    )


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(Settings):
    """How a push consumer pulls and hands over (RocketMQ `DefaultMQPushConsumer`)."""

    consumer_group: str = setting(
        DEFAULT_CONSUMER_GROUP,
        "Name of the set of consumers that share the messages.",
        rocketmq="consumerGroup",
    )
    message_model: MessageModel = setting(
        MessageModel.CLUSTERING, "Share the messages, or all to all.", rocketmq="messageModel"
    )
    consume_from_where: ConsumeFromWhere = setting(
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        "Where a group without progress begins.",
        rocketmq="consumeFromWhere",
    )
    consume_timestamp: str = setting(
        "",
        "Local time yyyyMMddHHmmss for CONSUME_FROM_TIMESTAMP; empty: half an hour ago.",
        rocketmq="consumeTimestamp",
    )
    allocation: Allocation = setting(
        Averagely(), "How queues are shared out.", rocketmq="allocateMessageQueueStrategy"
    )
    consume_threads_min: int = setting(
        10,
        "Threads for plain functions as handlers, at least.",
        rocketmq="consumeThreadMin",
        minimum=1,
        maximum=1_000,
    )
    consume_threads_max: int = setting(
        20,
        "Handlers that run at once, at most: threads, or coroutines on your loop.",
        rocketmq="consumeThreadMax",
        minimum=1,
        maximum=1_000,
    )
    consume_concurrently_max_span: int = setting(
        2_000,
        "Pause pulling when cached offsets of a queue lie further apart.",
        rocketmq="consumeConcurrentlyMaxSpan",
        minimum=1,
        maximum=65_535,
    )
    pull_threshold_for_queue: int = setting(
        1_000,
        "Pause pulling when more messages of a queue are cached.",
        rocketmq="pullThresholdForQueue",
        minimum=1,
        maximum=65_535,
    )
    pull_threshold_size_for_queue_mib: int = setting(
        100,
        "Pause pulling when more MiB of a queue are cached.",
        rocketmq="pullThresholdSizeForQueue",
        minimum=1,
        maximum=1_024,
    )
    pull_interval_ms: int = setting(
        0,
        "Pause after every pull that brought messages.",
        rocketmq="pullInterval",
        minimum=0,
        maximum=65_535,
    )
    consume_message_batch_max_size: int = setting(
        1,
        "Messages that one call of the handler takes, at most.",
        rocketmq="consumeMessageBatchMaxSize",
        minimum=1,
        maximum=limits.PULL_MESSAGES_MAX,
    )
    pull_batch_size: int = setting(
        32,
        "Messages a pull asks for when pull_size_bytes is 0.",
        rocketmq="pullBatchSize",
        minimum=1,
        maximum=1_024,
    )
    pull_size_bytes: int = setting(
        1024 * 1024,
        "Bytes a bulk pull asks for; 0: pulls by pull_batch_size under RocketMQ's limits.",
        minimum=0,
        maximum=limits.PULL_SIZE_BYTES_MAX,
    )
    max_reconsume_times: int = setting(
        -1,
        "Attempts after the first; -1: the group's own number (16).",
        rocketmq="maxReconsumeTimes",
        minimum=-1,
        maximum=65_535,
        without_effect=True,
    )
    redelivery_delay_ms: int = setting(
        1_000,
        "Pause before a failed message is handed over again.",
        rocketmq="suspendCurrentQueueTimeMillis",
        minimum=10,
        maximum=30_000,
    )
    broker_suspend_max_time_ms: int = setting(
        15_000,
        "How long a broker holds a pull without messages.",
        rocketmq="brokerSuspendMaxTimeMillis",
        minimum=0,
        maximum=60_000,
    )
    consumer_timeout_ms_when_suspend: int = setting(
        30_000,
        "How long we wait for a held pull.",
        rocketmq="consumerTimeoutMillisWhenSuspend",
        minimum=1,
        maximum=limits.DEADLINE_MS_MAX,
    )
    on_corrupt: CorruptPolicy = setting(
        CorruptPolicy.SKIP,
        "At an unreadable message: SKIP logs an error and goes on, HOLD waits for repair.",
    )
    pull_pause_ms_when_exception: int = setting(
        1_000,
        "Pause after a pull that failed.",
        rocketmq="pullTimeDelayMillsWhenException",
        minimum=1,
    )
    await_termination_ms: int = setting(
        30_000,
        "How long closing waits for running handlers.",
        rocketmq="awaitTerminationMillisWhenShutdown",
        minimum=0,
    )


@dataclass(frozen=True, kw_only=True)
class PullConsumerSettings(Settings):
    """How a pull consumer asks (RocketMQ `DefaultMQPullConsumer`)."""

    consumer_group: str = setting(
        DEFAULT_CONSUMER_GROUP, "Name of the group.", rocketmq="consumerGroup"
    )
    message_model: MessageModel = setting(
        MessageModel.BROADCASTING,
        "Share the messages, or all to all.",
        rocketmq="messageModel",
    )
    broker_suspend_max_time_ms: int = setting(
        20_000,
        "How long a broker holds a pull without messages.",
        rocketmq="brokerSuspendMaxTimeMillis",
        minimum=0,
        maximum=60_000,
    )
    consumer_timeout_ms_when_suspend: int = setting(
        30_000,
        "How long we wait for a held pull.",
        rocketmq="consumerTimeoutMillisWhenSuspend",
        minimum=1,
        maximum=limits.DEADLINE_MS_MAX,
    )
    consumer_pull_timeout_ms: int = setting(
        10_000,
        "How long we wait for a pull that is not held.",
        rocketmq="consumerPullTimeoutMillis",
        minimum=1,
        maximum=limits.DEADLINE_MS_MAX,
    )
    message_queue_listener: Callable[[str, list[MessageQueue]], None] | None = setting(
        None,
        "Called with a topic and its queues when they changed.",
        rocketmq="messageQueueListener",
    )
    register_topics: tuple[str, ...] = setting(
        (), "Topics whose queues are watched.", rocketmq="registerTopics"
    )
    allocation: Allocation = setting(
        Averagely(), "How queues are shared out.", rocketmq="allocateMessageQueueStrategy"
    )


def consume_timestamp_ms(text: str, now_ms: int) -> int:
    """`yyyyMMddHHmmss` in local time as ms since the epoch; half an hour ago when empty."""
    if not text:
        return now_ms - HOUR_MS // 2
    try:
        moment = datetime.strptime(text, "%Y%m%d%H%M%S").astimezone()
    except ValueError:
        raise ConfigError(f"consumeTimestamp {text!r} is no yyyyMMddHHmmss") from None
    return int(moment.timestamp() * 1000)
