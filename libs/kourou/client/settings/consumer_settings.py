"""The settings of push consumers and pull consumers, with RocketMQ's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from kourou.client.consumer.allocation import BY_NAME, Allocation, Averagely, allocation_named
from kourou.errors import ConfigError
from kourou.model import limits
from kourou.model.names import TRACE_TOPIC
from kourou.model.subscription import MATCH_ALL, ConsumeFromWhere, MessageModel
from kourou.model.topic import MessageQueue
from kourou.model.units import HOUR_MS
from kourou.protocol.bodies.heartbeat_body import consume_from_where
from kourou.settings.declaration import FUNCTION, SAME, InertKey, Settings, ValueForm, setting

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


# -- values that are neither numbers nor flags -----------------------------------------------------

HALF_AN_HOUR_MS = 1_800_000
_FOURTEEN_DIGITS = re.compile(r"[0-9]{14}", re.ASCII)
_TIMESTAMP_TEXT = "local time yyyyMMddHHmmss"


def _is_offset_store(value: Any) -> bool:
    return callable(getattr(value, "load", None)) and callable(getattr(value, "save", None))


def _from_where(text: str) -> Any:
    try:
        return consume_from_where(text)  # accepts the three deprecated spellings of RocketMQ
    except ValueError:
        return text


def _allocation(text: str) -> Any:
    try:
        return allocation_named(text)
    except ConfigError:
        return text


def _subscriptions(text: str) -> dict[str, str]:
    """Return `T=a || b;U` as expressions by topic; a topic without an expression means all tags."""
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    return {topic.strip(): expression.strip() or MATCH_ALL for topic, _, expression in pairs}


ALLOCATION = ValueForm(
    f"a strategy of kourou.client.consumer.allocation; in a file one of {', '.join(BY_NAME)}",
    callable,
    _allocation,
)
OFFSET_STORE = ValueForm("an object with load and save", _is_offset_store)
SUBSCRIPTION = ValueForm(
    "tag expressions by topic, in a file TOPIC=EXPRESSION;TOPIC=EXPRESSION", parse=_subscriptions
)
FROM_WHERE = ValueForm("one of " + ", ".join(ConsumeFromWhere), parse=_from_where)


def consume_timestamp_ms(text: str, now_ms: int) -> int:
    """Return `yyyyMMddHHmmss` in local time as ms since the epoch; half an hour ago if empty.

    Raises ConfigError for any other text.
    """
    if not text:
        return now_ms - HALF_AN_HOUR_MS
    try:
        if _FOURTEEN_DIGITS.fullmatch(text) is None:
            raise ValueError(text)
        moment = datetime.strptime(text, "%Y%m%d%H%M%S").astimezone()
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):  # OverflowError: years outside the clock's range
        raise ConfigError(f"consumeTimestamp is {text!r}, which is not {_TIMESTAMP_TEXT}") from None


def _is_timestamp(text: str) -> bool:
    try:
        consume_timestamp_ms(text, 0)
    except ConfigError:
        return False
    return True


TIMESTAMP = ValueForm(f"a {_TIMESTAMP_TEXT}", _is_timestamp)

# -- RocketMQ's keys that have no effect -----------------------------------------------------------

CONSUMER_KEYS: Mapping[str, InertKey] = {
    "adjustThreadPoolNumsThreshold": InertKey("100000", "RocketMQ does nothing with it either"),
    "popBatchNums": InertKey("32", "messages are pulled"),
    "popInvisibleTime": InertKey("60000", "messages are pulled"),
    "popThresholdForQueue": InertKey("96", "messages are pulled"),
    "postSubscriptionWhenPull": InertKey("false", "every pull carries its subscription"),
    "unitMode": InertKey("false", "brokers make no difference between units; unitName counts"),
}
"""RocketMQ 4.9 `DefaultMQPushConsumer`, with the keys for pop consumption of version 5."""

PULL_CONSUMER_KEYS: Mapping[str, InertKey] = {
    "maxReconsumeTimes": InertKey("16", "pull consumers decide about attempts themselves"),
    "unitMode": InertKey("false", "brokers make no difference between units; unitName counts"),
}
"""RocketMQ 4.9 `DefaultMQPullConsumer`."""

# -- settings --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(Settings):
    """Settings of a push consumer (RocketMQ `DefaultMQPushConsumer`)."""

    inert_keys: ClassVar[Mapping[str, InertKey]] = CONSUMER_KEYS

    consumer_group: str = setting(
        DEFAULT_CONSUMER_GROUP,
        "consumerGroup",
        "Name of the set of consumers that share the messages.",
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
    message_model: MessageModel = setting(
        MessageModel.CLUSTERING,
        "messageModel",
        "Consumers share the messages, or each gets all of them.",
        seed=SAME,
        rocketmq=SAME,
    )
    consume_from_where: ConsumeFromWhere = setting(
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        "consumeFromWhere",
        "First offset of a group without progress.",
        form=FROM_WHERE,
        seed=SAME,
        rocketmq=SAME,
    )
    consume_timestamp: str = setting(
        "",
        "consumeTimestamp",
        "Local time yyyyMMddHHmmss for CONSUME_FROM_TIMESTAMP; empty: half an hour ago.",
        form=TIMESTAMP,
        rocketmq="half an hour ago",
    )
    allocation: Allocation = setting(
        Averagely(),
        "allocateMessageQueueStrategy",
        "Strategy that distributes queues among consumers.",
        form=ALLOCATION,
        seed=SAME,
        rocketmq=SAME,
    )
    subscription: Mapping[str, str] = setting(
        {},
        "subscription",
        "Tag expressions by topic, where listen or subscribe names no topic.",
        form=SUBSCRIPTION,
        seed=SAME,
        rocketmq=SAME,
    )
    message_listener: Callable[[Any], Any] | None = setting(
        None,
        "messageListener",
        "The handler, where listen is given none.",
        form=FUNCTION,
        seed=SAME,
        rocketmq=SAME,
    )
    offset_store: OffsetStore | None = setting(
        None,
        "offsetStore",
        "Keeps the group's progress instead of brokers or a local file.",
        form=OFFSET_STORE,
        seed=SAME,
        rocketmq=SAME,
    )
    consume_threads_min: int = setting(
        CONSUME_THREADS_MIN,
        "consumeThreadMin",
        "Threads for plain functions as handlers, at least; fewer if the next one is less.",
        low=1,
        high=1_000,
        seed=SAME,
        rocketmq="20",
    )
    consume_threads_max: int = setting(
        20,
        "consumeThreadMax",
        "Handlers that run at once, at most: threads, or coroutines on your loop.",
        low=1,
        high=1_000,
        seed=SAME,
        rocketmq=SAME,
    )
    consume_concurrently_max_span: int = setting(
        2_000,
        "consumeConcurrentlyMaxSpan",
        "Pause pulling when cached offsets of a queue lie further apart.",
        low=1,
        high=65_535,
        seed=SAME,
        rocketmq=SAME,
    )
    pull_threshold_for_queue: int = setting(
        1_000,
        "pullThresholdForQueue",
        "Pause pulling when more messages of a queue are cached.",
        low=1,
        high=65_535,
        seed=SAME,
        rocketmq=SAME,
    )
    pull_threshold_size_for_queue_mib: int = setting(
        100,
        "pullThresholdSizeForQueue",
        "Pause pulling when more MiB of a queue are cached.",
        unit="MiB",
        low=1,
        high=1_024,
        rocketmq=SAME,
    )
    pull_threshold_for_topic: int = setting(
        -1,
        "pullThresholdForTopic",
        "The same count for a topic, divided among its queues here; -1: each queue by its own.",
        low=-1,
        high=6_553_500,
        rocketmq=SAME,
    )
    pull_threshold_size_for_topic_mib: int = setting(
        -1,
        "pullThresholdSizeForTopic",
        "The same size for a topic, divided likewise; -1: each queue by its own.",
        unit="MiB",
        low=-1,
        high=102_400,
        rocketmq=SAME,
    )
    pull_interval_ms: int = setting(
        0,
        "pullInterval",
        "Pause after every pull that brought messages.",
        unit="ms",
        low=0,
        high=65_535,
        seed=SAME,
        rocketmq=SAME,
    )
    consume_message_batch_max_size: int = setting(
        1,
        "consumeMessageBatchMaxSize",
        "Messages that one call of the handler takes, at most.",
        low=1,
        high=limits.PULL_MESSAGES_MAX,
        seed=SAME,
        rocketmq=SAME,
    )
    pull_batch_size: int = setting(
        0,
        "pullBatchSize",
        "Messages requested by a pull; 0: as many as fit into pull_size_bytes, at most 1,000.",
        low=0,
        high=1_024,
        seed="32",
        rocketmq="32",
    )
    pull_size_bytes: int = setting(
        1024 * 1024,
        "pullSizeBytes",
        "Bytes requested by a pull; 0: the broker's limits for RocketMQ's pulls.",
        unit="bytes",
        low=0,
        high=limits.PULL_SIZE_BYTES_MAX,
    )
    max_reconsume_times: int = setting(
        -1,
        "maxReconsumeTimes",
        "Attempts after the first; -1: the group's own number (16), in order without end.",
        low=-1,
        high=65_535,
        seed="16",
        rocketmq=SAME,
    )
    consume_timeout_minutes: int = setting(
        15,
        "consumeTimeout",
        "A message whose handler takes longer is sent back to the broker and redelivered.",
        unit="minutes",
        low=1,
        high=10_080,
        rocketmq=SAME,
    )
    local_redelivery_delay_ms: int = setting(
        5_000,
        "localRedeliveryDelayMs",
        "Delay before a failed message that no broker accepts is redelivered locally.",
        unit="ms",
        low=1,
        high=HOUR_MS,
    )
    skip_backlog_over: int = setting(
        -1,
        "skipBacklogOver",
        "Skip messages that are more than this number before their queue's end; -1: none.",
        low=-1,
        high=limits.SKIP_BACKLOG_MAX,
    )
    redelivery_delay_ms: int = setting(
        1_000,
        "suspendCurrentQueueTimeMillis",
        "Delay before an ordered queue redelivers its failed message.",
        unit="ms",
        low=10,
        high=30_000,
        rocketmq=SAME,
    )
    broker_suspend_max_time_ms: int = setting(
        15_000,
        "brokerSuspendMaxTimeMillis",
        "How long a broker holds a pull without messages.",
        unit="ms",
        low=0,
        high=60_000,
        rocketmq=SAME,
    )
    consumer_timeout_ms_when_suspend: int = setting(
        30_000,
        "consumerTimeoutMillisWhenSuspend",
        "Timeout of a long poll; at least 1000 ms more than broker_suspend_max_time_ms.",
        unit="ms",
        low=ANSWER_SLACK_MS,
        high=limits.DEADLINE_MS_MAX,
        rocketmq=SAME,
    )
    on_corrupt: CorruptPolicy = setting(
        CorruptPolicy.SKIP,
        "onCorrupt",
        "At an unreadable message: SKIP logs an error and continues, HOLD waits for repair.",
    )
    filter_failover: FilterFailover = setting(
        FilterFailover.ANOTHER,
        "filterFailover",
        "If a filter server does not respond: use another one of its broker, or wait for it.",
    )
    pull_pause_ms_when_exception: int = setting(
        1_000,
        "pullTimeDelayMillsWhenException",
        "Pause after a pull that failed.",
        unit="ms",
        low=1,
        high=HOUR_MS,
        rocketmq=SAME,
    )
    await_termination_ms: int = setting(
        30_000,
        "awaitTerminationMillisWhenShutdown",
        "How long closing waits for running handlers.",
        unit="ms",
        low=0,
        high=HOUR_MS,
        rocketmq="0",
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

    inert_keys: ClassVar[Mapping[str, InertKey]] = PULL_CONSUMER_KEYS

    consumer_group: str = setting(
        DEFAULT_CONSUMER_GROUP,
        "consumerGroup",
        "Name of the group.",
        seed=SAME,
        rocketmq=SAME,
    )
    message_model: MessageModel = setting(
        MessageModel.BROADCASTING,
        "messageModel",
        "Consumers share the messages, or each gets all of them.",
        seed=SAME,
        rocketmq="CLUSTERING",
    )
    broker_suspend_max_time_ms: int = setting(
        20_000,
        "brokerSuspendMaxTimeMillis",
        "How long a broker holds a pull without messages.",
        unit="ms",
        low=0,
        high=60_000,
        seed=SAME,
        rocketmq=SAME,
    )
    consumer_timeout_ms_when_suspend: int = setting(
        30_000,
        "consumerTimeoutMillisWhenSuspend",
        "Timeout of a long poll; at least 1000 ms more than broker_suspend_max_time_ms.",
        unit="ms",
        low=ANSWER_SLACK_MS,
        high=limits.DEADLINE_MS_MAX,
        seed=SAME,
        rocketmq=SAME,
    )
    consumer_pull_timeout_ms: int = setting(
        10_000,
        "consumerPullTimeoutMillis",
        "Timeout of a pull without long polling.",
        unit="ms",
        low=1,
        high=limits.DEADLINE_MS_MAX,
        seed=SAME,
        rocketmq=SAME,
    )
    message_queue_listener: Callable[[str, list[MessageQueue]], None] | None = setting(
        None,
        "messageQueueListener",
        "Called with a topic and its queues when they changed.",
        form=FUNCTION,
        seed=SAME,
        rocketmq=SAME,
    )
    offset_store: OffsetStore | None = setting(
        None,
        "offsetStore",
        "Keeps the group's progress instead of the brokers.",
        form=OFFSET_STORE,
        seed=SAME,
        rocketmq=SAME,
    )
    register_topics: tuple[str, ...] = setting(
        (),
        "registerTopics",
        "Topics whose queues are watched.",
        seed=SAME,
        rocketmq=SAME,
    )
    allocation: Allocation = setting(
        Averagely(),
        "allocateMessageQueueStrategy",
        "Which queues balanced_queues gives this member of a sharing group.",
        form=ALLOCATION,
        seed=SAME,
        rocketmq=SAME,
    )
    filter_failover: FilterFailover = setting(
        FilterFailover.ANOTHER,
        "filterFailover",
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
