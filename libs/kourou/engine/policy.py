"""The broker's settings as its decisions need them.

A broker's settings object is its policy: `BrokerSettings` of the service inherits these classes.
The pages about settings show the first sentence of each class above its settings.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from kourou.errors import ConfigError
from kourou.model import limits, names
from kourou.model.message import DELAY_LEVELS, parse_delay_levels
from kourou.model.units import HOUR_MS
from kourou.runtime import BUSY_POLL_US
from kourou.settings.declaration import SAME, setting, settings_of

HOURS_PATTERN = r"\s*([01]?[0-9]|2[0-3])\s*(;\s*([01]?[0-9]|2[0-3])\s*)*"
_HOURS = re.compile(HOURS_PATTERN)


class BrokerRole(StrEnum):
    """The replication role. SLAVE is run by the ha-replica service."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


def _host_name() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", os.uname().nodename)
    return name[:127] or "DEFAULT_BROKER"


@dataclass(frozen=True)
class IdentitySettings:
    """The settings of a broker's identity, addresses and name servers."""

    cluster_name: str = setting(
        "DefaultCluster",
        "brokerClusterName",
        "The cluster this broker belongs to",
        seed=SAME,
        rocketmq=SAME,
    )
    broker_name: str = setting(
        _host_name,
        "brokerName",
        "A leader and its followers share this name",
        seed=SAME,
        rocketmq=SAME,
        default_text="the host's name",
    )
    broker_id: int = setting(
        0,
        "brokerId",
        "0 is the leader, anything above a follower",
        low=0,
        high=2**63 - 1,
        seed=SAME,
        rocketmq=SAME,
    )
    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        "brokerRole",
        "Whether a send waits for a follower (SYNC_MASTER) or not (ASYNC_MASTER)",
        seed=SAME,
        rocketmq=SAME,
    )
    permission: int = setting(
        6,
        "brokerPermission",
        "4 readable, 2 writable, 6 both: for all topics of this broker",
        low=0,
        high=7,
        dynamic=True,
        rocketmq=SAME,
    )
    region_id: str = setting(
        "DefaultRegion",
        "regionId",
        "Sent back with each message, for message traces",
        rocketmq=SAME,
    )


@dataclass(frozen=True, kw_only=True)
class TopicRules(IdentitySettings):
    """The settings of sends and pulls, and of automatic creation of topics and groups.

    These are the settings about topics.
    """

    auto_create: bool = setting(
        True,
        "autoCreateTopicEnable",
        "A send creates its topic; production turns this off",
        dynamic=True,
        seed=SAME,
        rocketmq=SAME,
    )
    default_queue_nums: int = setting(
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

    def owns(self, topic: str) -> bool:
        """Return whether the broker itself made the topic: clients cannot change or delete it."""
        return names.is_system_topic(topic) or topic in (
            self.cluster_name,
            self.broker_name,
            names.reply_topic(self.cluster_name),
            self.trace_topic_name,
        )


@dataclass(frozen=True, kw_only=True)
class TrafficPolicy(TopicRules):
    """The settings of sends and pulls, and of automatic creation of topics and groups."""

    # Groups.
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


@dataclass(frozen=True, kw_only=True)
class RetentionPolicy:
    """The settings of a broker's store: paths, flushes and retention.

    These are the settings about retention.
    """

    delete_when: str = setting(
        "04",
        "deleteWhen",
        "Hours at which expired files are deleted, 0 to 23, separated by ';'",
        pattern=HOURS_PATTERN,
        dynamic=True,
        seed="4",
        rocketmq=SAME,
    )
    reserved_hours: int = setting(
        72,
        "fileReservedTime",
        "How long a file is kept after its last write, consumed or not",
        unit="hours",
        low=1,
        high=24 * 3_650,
        dynamic=True,
        seed="48",
        rocketmq=SAME,
    )
    disk_clean_percent: int = setting(
        75,
        "diskMaxUsedSpaceRatio",
        "Disk usage above which expired files are deleted at any hour",
        unit="percent",
        low=10,
        high=95,
        dynamic=True,
        seed=SAME,
        rocketmq=SAME,
    )
    disk_force_percent: int = setting(
        85,
        "diskSpaceCleanForciblyRatio",
        "Disk usage above which the oldest files are deleted before they expire; "
        "below it messages are accepted again",
        unit="percent",
        low=10,
        high=100,
        dynamic=True,
    )
    disk_refuse_percent: int = setting(
        90,
        "diskSpaceWarningLevelRatio",
        "Disk usage above which messages are refused; reads continue",
        unit="percent",
        low=10,
        high=100,
        dynamic=True,
    )
    clean_forcibly: bool = setting(
        True,
        "cleanFileForciblyEnable",
        "On a full disk, delete files that have not expired; false: refuse messages",
        seed=SAME,
        rocketmq=SAME,
    )
    lose_unconsumed: bool = setting(
        True,
        "allowLoseUnconsumed",
        "Such a deletion may remove messages that a group has not consumed; the "
        "log names the groups",
    )

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """The hours of deleteWhen."""
        return parse_hours(self.delete_when)


@dataclass(frozen=True)
class BrokerPolicy(RetentionPolicy, TrafficPolicy):
    """Everything that an operator decides about a broker's decisions."""


class EffectivePolicy(BrokerPolicy):
    """The policy that is in effect: one object, which all handlers of a core share.

    A change of a dynamic setting replaces its value here, so that no handler needs to be informed.
    It has slots, because decisions read it for every message.
    """

    __slots__ = tuple(one.name for one in settings_of(BrokerPolicy))

    @classmethod
    def of(cls, policy: BrokerPolicy) -> Self:
        """Return a copy of the configured policy."""
        return cls(**{one.name: getattr(policy, one.name) for one in settings_of(BrokerPolicy)})

    def change(self, **values: Any) -> None:
        """Replace some values."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def parse_hours(text: str) -> tuple[int, ...]:
    """Return the hours of deleteWhen, 0 to 23. Raises ConfigError."""
    if not _HOURS.fullmatch(text):
        raise ConfigError(
            f"deleteWhen={text!r} is invalid", hint="use hours from 0 to 23, as 04 or 02;14"
        )
    return tuple(int(hour) for hour in text.split(";"))
