"""The settings of push consumers and pull consumers, with RocketMQ's names."""

# ruff: noqa: RUF009 - setting() makes dataclass fields, as dataclasses.field() does

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from kourou.client.consumer.allocation import Allocation, Averagely
from kourou.client.settings import forms, inert
from kourou.client.settings.declaration import FUNCTION, HOUR_MS, InertKey, Settings, setting
from kourou.errors import ConfigError
from kourou.model import limits
from kourou.model.names import TRACE_TOPIC
from kourou.model.subscription import ConsumeFromWhere, MessageModel
from kourou.model.topic import MessageQueue

if TYPE_CHECKING:
    from kourou.client.consumer.offsets import OffsetStore

DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
CONSUME_THREADS_MIN = 10
ANSWER_SLACK_MS = 1_000
"""The minimum by which the timeout of a long poll exceeds the time that the broker may wait."""


class CorruptPolicy(StrEnum):
    """What a consumer does at a message that fails its checksum at the broker."""

    SKIP = "SKIP"
    HOLD = "HOLD"


class FilterFailover(StrEnum):
    """What a consumer with a Python filter does if a queue's filter server does not reply."""

    ANOTHER = "another"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(Settings):
    """Settings of a push consumer (RocketMQ `DefaultMQPushConsumer`)."""

    inert_keys: ClassVar[Mapping[str, InertKey]] = inert.CONSUMER_KEYS

    consumer_group: str = setting(
        DEFAULT_CONSUMER_GROUP,
        "Name of the set of consumers that share the messages.",
        rocketmq="consumerGroup",
    )
    message_trace: bool = setting(
        False,
        "Write a trace of each message to the trace topic, as RocketMQ's clients do.",
        rocketmq="enableMsgTrace",
    )
    message_trace_topic: str = setting(
        TRACE_TOPIC, "Where message traces are written.", rocketmq="customizedTraceTopic"
    )
    message_model: MessageModel = setting(
        MessageModel.CLUSTERING,
        "Consumers share the messages, or each gets all of them.",
        rocketmq="messageModel",
    )
    consume_from_where: ConsumeFromWhere = setting(
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        "First offset of a group without progress.",
        rocketmq="consumeFromWhere",
        form=forms.FROM_WHERE,
    )
    consume_timestamp: str = setting(
        "",
        "Local time yyyyMMddHHmmss for CONSUME_FROM_TIMESTAMP; empty: half an hour ago.",
        rocketmq="consumeTimestamp",
        form=forms.TIMESTAMP,
    )
    allocation: Allocation = setting(
        Averagely(),
        "Strategy that distributes queues among consumers.",
        rocketmq="allocateMessageQueueStrategy",
        form=forms.ALLOCATION,
    )
    subscription: Mapping[str, str] = setting(
        {},
        "Tag expressions by topic, where listen or subscribe names no topic.",
        rocketmq="subscription",
        form=forms.SUBSCRIPTION,
    )
    message_listener: Callable[[Any], Any] | None = setting(
        None,
        "The handler, where listen is given none.",
        rocketmq="messageListener",
        form=FUNCTION,
    )
    offset_store: OffsetStore | None = setting(
        None,
        "Keeps the group's progress instead of brokers or a local file.",
        rocketmq="offsetStore",
        form=forms.OFFSET_STORE,
    )
    consume_threads_min: int = setting(
        CONSUME_THREADS_MIN,
        "Threads for plain functions as handlers, at least; fewer if the next one is less.",
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
        unit="MiB",
        minimum=1,
        maximum=1_024,
    )
    pull_threshold_for_topic: int = setting(
        -1,
        "The same count for a topic, divided among its queues here; -1: each queue by its own.",
        rocketmq="pullThresholdForTopic",
        minimum=-1,
        maximum=6_553_500,
    )
    pull_threshold_size_for_topic_mib: int = setting(
        -1,
        "The same size for a topic, divided likewise; -1: each queue by its own.",
        rocketmq="pullThresholdSizeForTopic",
        unit="MiB",
        minimum=-1,
        maximum=102_400,
    )
    pull_interval_ms: int = setting(
        0,
        "Pause after every pull that brought messages.",
        rocketmq="pullInterval",
        unit="ms",
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
        0,
        "Messages requested by a pull; 0: as many as fit into pull_size_bytes, at most 1,000.",
        rocketmq="pullBatchSize",
        minimum=0,
        maximum=1_024,
    )
    pull_size_bytes: int = setting(
        1024 * 1024,
        "Bytes requested by a pull; 0: the broker's limits for RocketMQ's pulls.",
        unit="bytes",
        minimum=0,
        maximum=limits.PULL_SIZE_BYTES_MAX,
    )
    max_reconsume_times: int = setting(
        -1,
        "Attempts after the first; -1: the group's own number (16), in order without end.",
        rocketmq="maxReconsumeTimes",
        minimum=-1,
        maximum=65_535,
    )
    consume_timeout_minutes: int = setting(
        15,
        "A message whose handler takes longer is sent back to the broker and redelivered.",
        rocketmq="consumeTimeout",
        unit="minutes",
        minimum=1,
        maximum=10_080,
    )
    local_redelivery_delay_ms: int = setting(
        5_000,
        "Delay before a failed message that no broker accepts is redelivered locally.",
        unit="ms",
        minimum=1,
        maximum=HOUR_MS,
    )
    skip_backlog_over: int = setting(
        -1,
        "Skip messages that are more than this number before their queue's end; -1: none.",
        minimum=-1,
        maximum=limits.SKIP_BACKLOG_MAX,
    )
    redelivery_delay_ms: int = setting(
        1_000,
        "Delay before an ordered queue redelivers its failed message.",
        rocketmq="suspendCurrentQueueTimeMillis",
        unit="ms",
        minimum=10,
        maximum=30_000,
    )
    broker_suspend_max_time_ms: int = setting(
        15_000,
        "How long a broker holds a pull without messages.",
        rocketmq="brokerSuspendMaxTimeMillis",
        unit="ms",
        minimum=0,
        maximum=60_000,
    )
    consumer_timeout_ms_when_suspend: int = setting(
        30_000,
        "Timeout of a long poll; at least 1000 ms more than broker_suspend_max_time_ms.",
        rocketmq="consumerTimeoutMillisWhenSuspend",
        unit="ms",
        minimum=ANSWER_SLACK_MS,
        maximum=limits.DEADLINE_MS_MAX,
    )
    on_corrupt: CorruptPolicy = setting(
        CorruptPolicy.SKIP,
        "At an unreadable message: SKIP logs an error and continues, HOLD waits for repair.",
    )
    filter_failover: FilterFailover = setting(
        FilterFailover.ANOTHER,
        "If a filter server does not respond: use another one of its broker, or wait for it.",
    )
    pull_pause_ms_when_exception: int = setting(
        1_000,
        "Pause after a pull that failed.",
        rocketmq="pullTimeDelayMillsWhenException",
        unit="ms",
        minimum=1,
        maximum=HOUR_MS,
    )
    await_termination_ms: int = setting(
        30_000,
        "How long closing waits for running handlers.",
        rocketmq="awaitTerminationMillisWhenShutdown",
        unit="ms",
        minimum=0,
        maximum=HOUR_MS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _answers_come_in_time(
            self.broker_suspend_max_time_ms, self.consumer_timeout_ms_when_suspend
        )
        if self.consume_threads_max < self.consume_threads_min != CONSUME_THREADS_MIN:
            raise ConfigError(
                f"consume_threads_min (consumeThreadMin) is {self.consume_threads_min}; it must be "
                f"at most consume_threads_max (consumeThreadMax), which is "
                f"{self.consume_threads_max}"
            )
        for name, value in (
            ("pull_threshold_for_topic (pullThresholdForTopic)", self.pull_threshold_for_topic),
            (
                "pull_threshold_size_for_topic_mib (pullThresholdSizeForTopic)",
                self.pull_threshold_size_for_topic_mib,
            ),
        ):
            if value == 0:
                raise ConfigError(f"{name} is 0; it must be -1, or at least 1")


@dataclass(frozen=True, kw_only=True)
class PullConsumerSettings(Settings):
    """Settings of a pull consumer (RocketMQ `DefaultMQPullConsumer`)."""

    inert_keys: ClassVar[Mapping[str, InertKey]] = inert.PULL_CONSUMER_KEYS

    consumer_group: str = setting(
        DEFAULT_CONSUMER_GROUP, "Name of the group.", rocketmq="consumerGroup"
    )
    message_model: MessageModel = setting(
        MessageModel.BROADCASTING,
        "Consumers share the messages, or each gets all of them.",
        rocketmq="messageModel",
    )
    broker_suspend_max_time_ms: int = setting(
        20_000,
        "How long a broker holds a pull without messages.",
        rocketmq="brokerSuspendMaxTimeMillis",
        unit="ms",
        minimum=0,
        maximum=60_000,
    )
    consumer_timeout_ms_when_suspend: int = setting(
        30_000,
        "Timeout of a long poll; at least 1000 ms more than broker_suspend_max_time_ms.",
        rocketmq="consumerTimeoutMillisWhenSuspend",
        unit="ms",
        minimum=ANSWER_SLACK_MS,
        maximum=limits.DEADLINE_MS_MAX,
    )
    consumer_pull_timeout_ms: int = setting(
        10_000,
        "Timeout of a pull without long polling.",
        rocketmq="consumerPullTimeoutMillis",
        unit="ms",
        minimum=1,
        maximum=limits.DEADLINE_MS_MAX,
    )
    message_queue_listener: Callable[[str, list[MessageQueue]], None] | None = setting(
        None,
        "Called with a topic and its queues when they changed.",
        rocketmq="messageQueueListener",
        form=FUNCTION,
    )
    offset_store: OffsetStore | None = setting(
        None,
        "Keeps the group's progress instead of the brokers.",
        rocketmq="offsetStore",
        form=forms.OFFSET_STORE,
    )
    register_topics: tuple[str, ...] = setting(
        (), "Topics whose queues are watched.", rocketmq="registerTopics"
    )
    allocation: Allocation = setting(
        Averagely(),
        "Which queues balanced_queues gives this member of a sharing group.",
        rocketmq="allocateMessageQueueStrategy",
        form=forms.ALLOCATION,
    )
    filter_failover: FilterFailover = setting(
        FilterFailover.ANOTHER,
        "If a filter server does not respond: use another one of its broker, or wait for it.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _answers_come_in_time(
            self.broker_suspend_max_time_ms, self.consumer_timeout_ms_when_suspend
        )


def _answers_come_in_time(suspend_ms: int, timeout_ms: int) -> None:
    """Raise ConfigError if a long poll of full length would time out before its reply arrives."""
    if timeout_ms < suspend_ms + ANSWER_SLACK_MS:
        raise ConfigError(
            f"consumer_timeout_ms_when_suspend (consumerTimeoutMillisWhenSuspend) is {timeout_ms}; "
            f"it must be at least {ANSWER_SLACK_MS} ms more than broker_suspend_max_time_ms "
            f"(brokerSuspendMaxTimeMillis), which is {suspend_ms}"
        )
