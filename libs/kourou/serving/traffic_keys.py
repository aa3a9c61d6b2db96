"""The settings of sends and pulls, and of automatic creation of topics and groups."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.model import limits
from kourou.model.delay import DELAY_LEVELS, parse_delay_levels
from kourou.settings.declaration import SAME, setting
from kourou.transport.busy_poll import BUSY_POLL_US

HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True)
class TrafficKeys:
    """Topics, groups, sends and pulls."""

    # Topics and groups.
    auto_create_topic: bool = setting(
        True,
        "autoCreateTopicEnable",
        "A send creates its topic; production turns this off",
        dynamic=True,
        seed=SAME,
        rocketmq=SAME,
    )
    default_topic_queue_nums: int = setting(
        8,
        "defaultTopicQueueNums",
        "Most queues that a topic created by a send may have",
        low=1,
        high=limits.TOPIC_QUEUES_MAX,
        rocketmq=SAME,
    )
    auto_create_group: bool = setting(
        True,
        "autoCreateSubscriptionGroup",
        "A consumer creates its group",
        dynamic=True,
        seed=SAME,
        rocketmq=SAME,
    )
    cluster_topic: bool = setting(
        True,
        "clusterTopicEnable",
        "A topic named as the cluster exists",
        rocketmq=SAME,
    )
    broker_topic: bool = setting(
        True,
        "brokerTopicEnable",
        "A topic named as the broker exists",
        rocketmq=SAME,
    )
    trace_topic: bool = setting(
        False,
        "traceTopicEnable",
        "The topic for message traces exists",
        rocketmq=SAME,
    )
    trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC",
        "msgTraceTopicName",
        "Its name",
        rocketmq=SAME,
    )
    trace_on: bool = setting(
        True,
        "traceOn",
        "Tell clients that their messages may be traced",
        dynamic=True,
        rocketmq=SAME,
    )
    group_subscription_policy: str = setting(
        "warn",
        "groupSubscriptionPolicy",
        "What happens to a member whose subscriptions differ from its group's",
        choices=("warn", "refuse"),
        dynamic=True,
    )
    notify_consumer_ids_changed: bool = setting(
        True,
        "notifyConsumerIdsChangedEnable",
        "Tell members of a group when it changes",
        dynamic=True,
        rocketmq=SAME,
    )
    client_expiry_ms: int = setting(
        120_000,
        "channelExpiredTimeout",
        "A client that sends no heartbeat for this long is removed",
        unit="ms",
        low=1_000,
        high=HOUR_MS,
        dynamic=True,
        rocketmq=SAME,
    )

    # Python filters.
    filter_upload: bool = setting(
        True,
        "filterUploadEnable",
        "Consumers may upload filters",
        dynamic=True,
    )
    filter_auto_enable: bool = setting(
        True,
        "filterAutoEnable",
        "A new version of a filter becomes active at its upload, if the uploader "
        "requests it; false: when an operator enables it",
        dynamic=True,
    )
    filter_server_expiry_ms: int = setting(
        30_000,
        "filterServerExpiry",
        "A filter server that sends no heartbeat for this long is removed; it sends one every 10 s",
        unit="ms",
        low=1_000,
        high=HOUR_MS,
        dynamic=True,
    )

    # Sends.
    body_size_max: int = setting(
        limits.BODY_SIZE_BYTES_MAX,
        "maxMessageSize",
        "Largest message body",
        unit="bytes",
        low=1,
        high=limits.BODY_SIZE_BYTES_MAX,
        dynamic=True,
        seed="131072",
        rocketmq=SAME,
    )
    reject_transactions: bool = setting(
        False,
        "rejectTransactionMessage",
        "Refuse transactional messages",
        dynamic=True,
        seed=SAME,
        rocketmq=SAME,
    )
    store_replies: bool = setting(
        True,
        "storeReplyMessageEnable",
        "Store the replies of request-reply messaging, in addition to delivering them",
        dynamic=True,
        rocketmq=SAME,
    )
    transaction_timeout_ms: int = setting(
        6_000,
        "transactionTimeOut",
        "How long a half message stays open before its producers are checked",
        unit="ms",
        low=1,
        high=24 * HOUR_MS,
        dynamic=True,
        rocketmq=SAME,
    )
    transaction_check_max: int = setting(
        15,
        "transactionCheckMax",
        "Maximum number of checks of a half message; then it is moved to "
        "TRANS_CHECK_MAX_TIME_TOPIC",
        low=1,
        high=1_000_000,
        dynamic=True,
        rocketmq=SAME,
    )
    transaction_check_interval_ms: int = setting(
        60_000,
        "transactionCheckInterval",
        "How often open half messages are checked",
        unit="ms",
        low=1,
        high=24 * HOUR_MS,
        dynamic=True,
        rocketmq=SAME,
    )
    batch_timeout_ms: int = setting(
        6 * HOUR_MS,
        "batchTransactionTimeOut",
        "After this time, half messages of a batch that was never prepared are discarded",
        unit="ms",
        low=1_000,
        high=7 * 24 * HOUR_MS,
        dynamic=True,
    )
    batch_memory_hours: int = setting(
        720,
        "batchQueryReservedTime",
        "How long the last batch of a query is remembered after the query's last write",
        unit="hours",
        low=1,
        high=24 * 3_650,
        dynamic=True,
    )
    deduplicate_retried_sends: bool = setting(
        True,
        "deduplicateRetriedSends",
        "A send that is repeated within its deadline is answered and not stored again",
        dynamic=True,
    )
    send_wait_ms_max: int = setting(
        200,
        "waitTimeMillsInSendQueue",
        "RocketMQ's limit for a send waiting for a thread; here it is handled when it is read",
        unit="ms",
        low=1,
        high=60_000,
        rocketmq=SAME,
        without_effect=True,
    )
    inbox_inputs_max: int = setting(
        10_000,
        "sendThreadPoolQueueCapacity",
        "When so many requests are waiting, further ones are rejected: the broker is busy",
        low=1,
        high=1_000_000,
        rocketmq=SAME,
    )

    # Pulls.
    transfer_bytes_in_memory: int = setting(
        262_144,
        "maxTransferBytesOnMessageInMemory",
        "Bytes of one pull that reads from memory",
        unit="bytes",
        low=1,
        high=limits.FRAME_SIZE_BYTES_MAX,
        dynamic=True,
        seed=SAME,
        rocketmq=SAME,
    )
    transfer_count_in_memory: int = setting(
        32,
        "maxTransferCountOnMessageInMemory",
        "Messages of one pull that reads from memory",
        low=1,
        high=limits.PULL_MESSAGES_MAX,
        dynamic=True,
        seed=SAME,
        rocketmq=SAME,
    )
    transfer_bytes_on_disk: int = setting(
        65_536,
        "maxTransferBytesOnMessageInDisk",
        "Bytes of one pull that reads from disk",
        unit="bytes",
        low=1,
        high=limits.FRAME_SIZE_BYTES_MAX,
        dynamic=True,
        seed=SAME,
        rocketmq=SAME,
    )
    transfer_count_on_disk: int = setting(
        8,
        "maxTransferCountOnMessageInDisk",
        "Messages of one pull that reads from disk",
        low=1,
        high=limits.PULL_MESSAGES_MAX,
        dynamic=True,
        seed=SAME,
        rocketmq=SAME,
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
    pull_bytes_max: int = setting(
        limits.PULL_SIZE_BYTES_MAX,
        "maxPullBytes",
        "Bytes of one pull of Kourou's own clients",
        unit="bytes",
        low=65_536,
        high=limits.PULL_SIZE_BYTES_MAX,
        dynamic=True,
    )
    slave_read: bool = setting(
        False,
        "slaveReadEnable",
        "A consumer with a large lag is sent to a follower",
        dynamic=True,
        rocketmq=SAME,
    )
    long_polling: bool = setting(
        True,
        "longPollingEnable",
        "Keep a pull waiting when there is nothing to read (long polling)",
        dynamic=True,
        rocketmq=SAME,
    )
    hold_ms_max: int = setting(
        30_000,
        "longPollingTimeMillsMax",
        "Longest such wait, whatever a client requests",
        unit="ms",
        low=100,
        high=limits.DEADLINE_MS_MAX,
        dynamic=True,
    )
    progress_interval_ms: int = setting(
        5_000,
        "flushConsumerOffsetInterval",
        "How often the offsets of groups are recorded",
        unit="ms",
        low=100,
        high=600_000,
        dynamic=True,
        rocketmq=SAME,
    )
    query_max: int = setting(
        32,
        "defaultQueryMaxNum",
        "Most messages of one query by key",
        low=1,
        high=limits.QUERY_MESSAGES_MAX,
        dynamic=True,
        rocketmq=SAME,
    )
    property_filter: bool = setting(
        True,
        "enablePropertyFilter",
        "Allow filters in SQL92 over message properties",
        dynamic=True,
        seed="false",
        rocketmq="false",
    )
    busy_poll_us: int = setting(
        BUSY_POLL_US,
        "busyPollMicros",
        "How long the broker looks for the next request before it sleeps, while requests come "
        "faster than that; 0: it sleeps at once",
        unit="us",
        low=0,
        high=10_000,
    )
    message_delay_level: str = setting(
        DELAY_LEVELS,
        "messageDelayLevel",
        "The delays of levels 1, 2, 3 and so on; units s, m, h, d",
        seed=SAME,
        rocketmq=SAME,
    )

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delays of messageDelayLevel; the first is that of level 1."""
        return parse_delay_levels(self.message_delay_level)
