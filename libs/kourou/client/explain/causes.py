"""The reasons for a message's status: codes, titles, severities, advice and text.

Codes are stable, because programs compare them. docs/why.md documents each code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

Fact = str | int | bool | None | tuple[str, ...]
Values = dict[str, Fact]


class Severity(StrEnum):
    """The severity of a reason."""

    OK = "ok"  # as expected
    WAITING = "waiting"  # no problem: it will be resolved without intervention
    BLOCKED = "blocked"  # intervention is needed
    GONE = "gone"  # the message will not be delivered any more


class CauseCode(StrEnum):
    """The codes, those of the message first."""

    STORED = "stored"
    NEVER_STORED = "never_stored"
    NOT_FOUND = "not_found"
    EXPIRED = "expired"
    BODY_DAMAGED = "body_damaged"
    BROKER_AWAY = "broker_away"
    NOT_CONFIRMED = "not_confirmed"
    COPIES_MISSING = "copies_missing"
    ANSWERED_BY_FOLLOWER = "answered_by_follower"
    TRANSACTION_OPEN = "transaction_open"
    TRANSACTION_ROLLED_BACK = "transaction_rolled_back"
    TRANSACTION_GIVEN_UP = "transaction_given_up"
    TRANSACTION_UNKNOWN = "transaction_unknown"
    DELAYED = "delayed"
    DELAY_OVERDUE = "delay_overdue"
    QUEUE_NOT_READ = "queue_not_read"
    TOPIC_UNREADABLE = "topic_unreadable"
    BROKER_UNREADABLE = "broker_unreadable"
    NOBODY_CONSUMES = "nobody_consumes"

    CONSUMED = "consumed"
    BROADCASTING = "broadcasting"
    FILTERED_BY_TAG = "filtered_by_tag"
    FILTERED_BY_SQL = "filtered_by_sql"
    FILTERED_BY_FILTER = "filtered_by_filter"
    FILTER_SKIPPED = "filter_skipped"
    FILTER_MISSING = "filter_missing"
    FILTER_DISABLED = "filter_disabled"
    FILTER_QUARANTINED = "filter_quarantined"
    FILTER_HOLDS = "filter_holds"
    PASSED_UNFILTERED = "passed_unfiltered"
    RESET_PAST = "reset_past"
    SKIPPED_BY_CONSUME_FROM_LAST = "skipped_by_consume_from_last"
    IN_RETRY = "in_retry"
    RETRY_DUE = "retry_due"
    DEAD_LETTERED = "dead_lettered"
    DEAD_LETTER_DEALT_WITH = "dead_letter_dealt_with"
    REDRIVEN = "redriven"
    GROUP_UNKNOWN = "group_unknown"
    CONSUMPTION_DISABLED = "consumption_disabled"
    BROADCAST_FORBIDDEN = "broadcast_forbidden"
    NO_MEMBER = "no_member"
    NOT_SUBSCRIBED = "not_subscribed"
    SUBSCRIPTIONS_CLASH = "subscriptions_clash"
    PULL_CONSUMER = "pull_consumer"
    MEMBER_SILENT = "member_silent"
    QUEUE_UNASSIGNED = "queue_unassigned"
    QUEUE_LOCKED = "queue_locked"
    ORDERED_RETRY = "ordered_retry"
    FLOW_CONTROLLED = "flow_controlled"
    MEMBER_STUCK = "member_stuck"
    IN_PROGRESS = "in_progress"
    WAITING_BEHIND = "waiting_behind"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The title, the severity and the advice of a code."""

    title: str
    severity: Severity
    advice: str


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One reason: its code, a sentence with the values, and the values by name."""

    code: CauseCode
    sentence: str
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def meaning(self) -> Meaning:
        """The title, severity and advice of the code."""
        return MEANINGS[self.code]


_OK, _WAITING, _BLOCKED, _GONE = Severity.OK, Severity.WAITING, Severity.BLOCKED, Severity.GONE

MEANINGS: Mapping[CauseCode, Meaning] = {
    # -- the message ------------------------------------------------------------------------------
    CauseCode.STORED: Meaning(
        "Stored", _OK, "No action needed. The message is available to consumers."
    ),
    CauseCode.NEVER_STORED: Meaning(
        "Never stored",
        _GONE,
        "Check the reply that the producer received; without a reply the producer has to send "
        "again.",
    ),
    CauseCode.NOT_FOUND: Meaning(
        "Not found",
        _GONE,
        "Check the ID: 32 hexadecimal digits (a unique key or an offset message id, 56 over IPv6), "
        "topic/broker/queue@offset, or a business key together with its topic. If the ID is "
        "right, the message was never stored, or its log segment has expired.",
    ),
    CauseCode.EXPIRED: Meaning(
        "Expired",
        _GONE,
        "The message is no longer available here. Raise fileReservedTime or reduce consumer lag; "
        "the broker's history (log/retention) lists the groups that had not read deleted messages.",
    ),
    CauseCode.BODY_DAMAGED: Meaning(
        "Damaged",
        _GONE,
        "The record fails its checksum and is not delivered. Another replica may have it intact: "
        "compare the replicas, or restore a backup.",
    ),
    CauseCode.BROKER_AWAY: Meaning(
        "Broker offline",
        _BLOCKED,
        "Start the broker, or promote its follower (kourou admin promote). Until then the "
        "information about its queues is out of date.",
    ),
    CauseCode.NOT_CONFIRMED: Meaning(
        "Not committed yet",
        _WAITING,
        "Consumers see it once it is as durable as configured (flushDiskType, brokerRole). If "
        "this persists, a follower or the disk is too slow: kourou admin replicas.",
    ),
    CauseCode.COPIES_MISSING: Meaning(
        "Not fully replicated",
        _WAITING,
        "A follower does not have it yet: check its state and lag (kourou admin replicas).",
    ),
    CauseCode.ANSWERED_BY_FOLLOWER: Meaning(
        "Reply from a follower",
        _WAITING,
        "The leader is offline, and a follower may have an older state of offsets, consumers and "
        "queue ends. Retry when a leader is online.",
    ),
    CauseCode.TRANSACTION_OPEN: Meaning(
        "Half of an open transaction",
        _WAITING,
        "The producer commits or rolls it back; the broker sends a check to the producer group "
        "periodically. If no producer is connected, start one that answers checks.",
    ),
    CauseCode.TRANSACTION_ROLLED_BACK: Meaning(
        "Rolled back", _OK, "The producer rolled it back. No action needed."
    ),
    CauseCode.TRANSACTION_GIVEN_UP: Meaning(
        "Transaction expired",
        _GONE,
        "No producer reported the outcome within transactionCheckMax checks. The message is kept "
        "in TRANS_CHECK_MAX_TIME_TOPIC. Fix the producers' check handler, and send the message "
        "again.",
    ),
    CauseCode.TRANSACTION_UNKNOWN: Meaning(
        "Transaction, outcome unknown",
        _WAITING,
        "It is unknown whether the transaction is open or rolled back: see the missing "
        "information.",
    ),
    CauseCode.DELAYED: Meaning("Delayed", _WAITING, "It is delivered when its delay ends."),
    CauseCode.DELAY_OVERDUE: Meaning(
        "Delayed, and overdue",
        _BLOCKED,
        "Its delay has ended but it is not in its topic yet. Check that the broker is writable "
        "(disk, permission) and has a leader; the broker's log gives the reason.",
    ),
    CauseCode.QUEUE_NOT_READ: Meaning(
        "Its queue is not read",
        _BLOCKED,
        "The topic had more queues when the message was sent. Raise readQueueNums (kourou admin "
        "updateTopic -r) until the queue is consumed, then lower it again.",
    ),
    CauseCode.TOPIC_UNREADABLE: Meaning(
        "The topic is not readable",
        _BLOCKED,
        "Restore the read permission of the topic (kourou admin updateTopicPerm -p 6).",
    ),
    CauseCode.BROKER_UNREADABLE: Meaning(
        "The broker is not readable", _BLOCKED, "Set its brokerPermission to 6, or 4 to read only."
    ),
    CauseCode.NOBODY_CONSUMES: Meaning(
        "No group consumes the topic",
        _BLOCKED,
        "Start a consumer that subscribes to the topic. With CONSUME_FROM_FIRST_OFFSET it starts "
        "at the oldest message.",
    ),
    # -- a group ----------------------------------------------------------------------------------
    CauseCode.CONSUMED: Meaning("Consumed", _OK, "No action needed. The group has consumed it."),
    CauseCode.BROADCASTING: Meaning(
        "Broadcast",
        _OK,
        "Every consumer receives it and keeps its own offset, shown for each. Consumers that were "
        "not connected then did not receive it.",
    ),
    CauseCode.FILTERED_BY_TAG: Meaning(
        "Filtered by tag",
        _OK,
        "The subscription does not match this tag. If it should, change the expression and reset "
        "the group's offset to before the message.",
    ),
    CauseCode.FILTERED_BY_SQL: Meaning(
        "Filtered by SQL92",
        _OK,
        "The message does not match the SQL filter. If it should, change the expression and reset "
        "the group's offset to before the message.",
    ),
    CauseCode.FILTERED_BY_FILTER: Meaning(
        "Filtered by the group's filter",
        _OK,
        "The filter rejected the message. Try another version (kourou admin filter try), enable "
        "it, and reset the group's offset to before the message.",
    ),
    CauseCode.FILTER_SKIPPED: Meaning(
        "Skipped by filter failure policy",
        _GONE,
        "The filter failed on the message and its policy is skip. Fix the filter and reset the "
        "group's offset to before the message.",
    ),
    CauseCode.FILTER_MISSING: Meaning(
        "The filter does not exist",
        _BLOCKED,
        "The group uses a filter that the broker does not have. Upload it (kourou admin filter "
        "put), or start a consumer that uploads it.",
    ),
    CauseCode.FILTER_DISABLED: Meaning(
        "The filter is disabled",
        _BLOCKED,
        "No version is enabled, so the group waits. Enable one (kourou admin filter enable).",
    ),
    CauseCode.FILTER_QUARANTINED: Meaning(
        "The filter is quarantined",
        _BLOCKED,
        "The group waits (policy hold). Upload a fixed version, roll back to the previous one, or "
        "set the policy to skip or pass (kourou admin filter).",
    ),
    CauseCode.FILTER_HOLDS: Meaning(
        "The filter failed",
        _BLOCKED,
        "The group waits at a message on which its filter failed, or no filter server responds: "
        "kourou admin filter list, kourou admin filter stats.",
    ),
    CauseCode.PASSED_UNFILTERED: Meaning(
        "Delivered unfiltered",
        _OK,
        "The enabled version is quarantined and the policy is pass: the group receives all "
        "messages. Upload a fixed version.",
    ),
    CauseCode.RESET_PAST: Meaning(
        "Skipped by an offset reset",
        _GONE,
        "The group's offset was moved past it. If the group should receive it, reset the offset "
        "to the time of the message, or revert that change (kourou undo).",
    ),
    CauseCode.SKIPPED_BY_CONSUME_FROM_LAST: Meaning(
        "The group started after it",
        _GONE,
        "A new group with CONSUME_FROM_LAST_OFFSET starts at the end. Reset its offset to the "
        "time of the message, or start with CONSUME_FROM_FIRST_OFFSET.",
    ),
    CauseCode.IN_RETRY: Meaning(
        "Waiting for a retry",
        _WAITING,
        "A handler failed; the message is redelivered at the given time.",
    ),
    CauseCode.RETRY_DUE: Meaning(
        "Retry due",
        _WAITING,
        "It is in the group's retry topic, which every consumer reads: check that a consumer is "
        "connected and has no lag.",
    ),
    CauseCode.DEAD_LETTERED: Meaning(
        "A dead letter",
        _GONE,
        "Its retries are used up, or the handler rejected it. Check the reason, fix the cause, "
        "and redeliver it (kourou admin resendDeadLetters).",
    ),
    CauseCode.DEAD_LETTER_DEALT_WITH: Meaning(
        "A dead letter, handled",
        _GONE,
        "It was discarded. It can still be redelivered.",
    ),
    CauseCode.REDRIVEN: Meaning(
        "A dead letter, redelivered",
        _WAITING,
        "It is in the group's retry topic again, with a new retry count.",
    ),
    CauseCode.GROUP_UNKNOWN: Meaning(
        "Group not found", _BLOCKED, "Check the name; a group is created by its first consumer."
    ),
    CauseCode.CONSUMPTION_DISABLED: Meaning(
        "Consumption is suspended",
        _BLOCKED,
        "Enable consumption again: consumeEnable (kourou admin updateSubGroup).",
    ),
    CauseCode.BROADCAST_FORBIDDEN: Meaning(
        "Broadcasting is disabled for the group",
        _BLOCKED,
        "Enable it (consumeBroadcastEnable), or consume in clustering mode.",
    ),
    CauseCode.NO_MEMBER: Meaning(
        "No connected consumer", _BLOCKED, "Start a consumer of the group."
    ),
    CauseCode.NOT_SUBSCRIBED: Meaning(
        "The group does not subscribe to the topic",
        _BLOCKED,
        "Its consumers subscribe to other topics. Subscribe to this one in all consumers.",
    ),
    CauseCode.SUBSCRIPTIONS_CLASH: Meaning(
        "Inconsistent subscriptions",
        _BLOCKED,
        "All consumers of a group must have the same subscription. Use another group for those "
        "that differ, or align them.",
    ),
    CauseCode.PULL_CONSUMER: Meaning(
        "Pull consumer",
        _WAITING,
        "The application decides what it reads and when; only its committed offset is known.",
    ),
    CauseCode.MEMBER_SILENT: Meaning(
        "A consumer does not respond",
        _BLOCKED,
        "It is connected but may be frozen or overloaded. Stop it; the other consumers take over "
        "its queues.",
    ),
    CauseCode.QUEUE_UNASSIGNED: Meaning(
        "No consumer owns the queue",
        _BLOCKED,
        "This is normal for a moment during a rebalance. If it persists, the allocation or the "
        "subscriptions differ between consumers.",
    ),
    CauseCode.QUEUE_LOCKED: Meaning(
        "Queue locked by another consumer",
        _WAITING,
        "Ordered consumers wait until the lock is released, or expires a minute after the "
        "holder's last heartbeat. A live holder releases it when its handler ends.",
    ),
    CauseCode.ORDERED_RETRY: Meaning(
        "Ordered queue waiting for a retry",
        _WAITING,
        "To keep the order, no message after the failed one is delivered. Fix the handler; after "
        "maxReconsumeTimes retries it becomes a dead letter.",
    ),
    CauseCode.FLOW_CONTROLLED: Meaning(
        "Paused by flow control",
        _WAITING,
        "The consumer's cache for the queue is full (pullThresholdForQueue, "
        "pullThresholdSizeForQueue, consumeConcurrentlyMaxSpan). Make handlers faster, or add "
        "consumers.",
    ),
    CauseCode.MEMBER_STUCK: Meaning(
        "A handler is stuck",
        _BLOCKED,
        "The oldest unfinished message has been in a handler for a long time. Check the "
        "consumer's thread stacks (kourou admin consumerStatus -s); after consumeTimeout the "
        "message is redelivered.",
    ),
    CauseCode.IN_PROGRESS: Meaning("Being consumed", _WAITING, "A consumer is processing it."),
    CauseCode.WAITING_BEHIND: Meaning(
        "Consumer lag",
        _WAITING,
        "Earlier messages in the queue are consumed first. If the lag grows, add consumers or "
        "queues.",
    ),
    CauseCode.UNDECIDED: Meaning(
        "Unknown", _WAITING, "Not enough information: see the missing information."
    ),
}


# -- text of sentences -----------------------------------------------------------------------------


def when(at_ms: int) -> str:
    """Return a time in UTC, to the second, independent of the machine's time zone."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer's clock may have any value
        return f"{at_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def duration(ms: int) -> str:
    """Return a duration in the largest unit that fits."""
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= 2 * size_ms:
            return f"{ms // size_ms} {unit}"
    return f"{ms} ms"


def count(number: int, what: str) -> str:
    """Return a number and a noun, in the plural if needed."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
