"""Every reason why a message is where it is: its code, and what to do.

Lives here: the codes, their titles, how bad each is, and the advice. May not live here: when one
holds (kourou.client.explain.verdict).

Codes are stable: programs compare them. docs/why.md has each with what to do.

State: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Fact = str | int | bool | None | tuple[str, ...]
Known = dict[str, Fact]


class Severity(StrEnum):
    """How it stands."""

    OK = "ok"  # it went as it should
    WAITING = "waiting"  # nothing is wrong: it comes by itself
    BLOCKED = "blocked"  # it does not come until somebody does something
    GONE = "gone"  # it does not come any more


class Code(StrEnum):
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
    IN_HANDS = "in_hands"
    WAITING_BEHIND = "waiting_behind"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code is called, how it stands, and what to do."""

    title: str
    severity: Severity
    advice: str


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason that holds: the code, a sentence with its numbers, and the numbers by name."""

    code: Code
    sentence: str
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def meaning(self) -> Meaning:
        """Its title, severity and advice."""
        return MEANINGS[self.code]


_OK, _WAITING, _BLOCKED, _GONE = Severity.OK, Severity.WAITING, Severity.BLOCKED, Severity.GONE

MEANINGS: Mapping[Code, Meaning] = {
    # -- the message ------------------------------------------------------------------------------
    Code.STORED: Meaning("Stored", _OK, "Nothing: whoever consumes the topic can have it."),
    Code.NEVER_STORED: Meaning(
        "Never stored",
        _GONE,
        "Look at what the producer was answered for it; one that got no answer sends it again.",
    ),
    Code.NOT_FOUND: Meaning(
        "Not found",
        _GONE,
        "Check the id: 32 hexadecimal digits (a unique key or an offset message id, 56 over IPv6), "
        "topic/broker/queue@offset, or a business key together with its topic. If it is right, the "
        "message was never stored, or its log segment has expired.",
    ),
    Code.EXPIRED: Meaning(
        "Expired",
        _GONE,
        "It cannot be read again here. Keep messages longer (fileReservedTime), or let groups keep "
        "up; the broker's history (log/retention) names who had not read what was deleted.",
    ),
    Code.BODY_DAMAGED: Meaning(
        "Damaged",
        _GONE,
        "The bytes fail their check and are served to nobody. Another copy of the log may have "
        "them: compare the replicas, or restore a backup.",
    ),
    Code.BROKER_AWAY: Meaning(
        "Its broker is away",
        _BLOCKED,
        "Start the broker that has it, or promote its follower (kourou admin promote); nothing of "
        "what is said here about its queues is current meanwhile.",
    ),
    Code.NOT_CONFIRMED: Meaning(
        "Not confirmed yet",
        _WAITING,
        "Readers see it when it is as safe as the setting promises (flushDiskType, brokerRole). If "
        "it stays so, a follower or the disk does not keep up: kourou admin replicas.",
    ),
    Code.COPIES_MISSING: Meaning(
        "Copies are missing",
        _WAITING,
        "A follower lacks it still: look at its state and lag (kourou admin replicas).",
    ),
    Code.ANSWERED_BY_FOLLOWER: Meaning(
        "A follower answered",
        _WAITING,
        "The leader is away, and a follower may know an older state: progress, members and the end "
        "of the queue are those that it had heard of. Ask again when a leader is there.",
    ),
    Code.TRANSACTION_OPEN: Meaning(
        "Half of an open transaction",
        _WAITING,
        "Its producer commits or rolls it back; the broker asks a member of the producer group in "
        "every round of checks. If none is connected, start one that answers checks.",
    ),
    Code.TRANSACTION_ROLLED_BACK: Meaning(
        "Rolled back", _OK, "Its producer did not want it delivered. Nothing is to be done."
    ),
    Code.TRANSACTION_GIVEN_UP: Meaning(
        "Transaction given up",
        _GONE,
        "Nobody told the outcome within transactionCheckMax checks. It is kept in "
        "TRANS_CHECK_MAX_TIME_TOPIC. Let its producers answer checks, and send it again.",
    ),
    Code.TRANSACTION_UNKNOWN: Meaning(
        "Transaction, outcome unknown",
        _WAITING,
        "Whether it is open or rolled back could not be read now: see what is missing.",
    ),
    Code.DELAYED: Meaning("Delayed", _WAITING, "It is delivered when its time has come."),
    Code.DELAY_OVERDUE: Meaning(
        "Delayed, and overdue",
        _BLOCKED,
        "Its time has passed and it is not in its topic yet. Is the broker writable (disk, "
        "permission), and does a leader serve it? Its log says why delayed messages wait.",
    ),
    Code.QUEUE_NOT_READ: Meaning(
        "Its queue is not read",
        _BLOCKED,
        "The topic had more queues when it was sent. Raise readQueueNums (kourou admin updateTopic "
        "-r) until groups have consumed the queue, then lower it again.",
    ),
    Code.TOPIC_UNREADABLE: Meaning(
        "The topic is not readable",
        _BLOCKED,
        "Give the topic its read permission back (kourou admin updateTopicPerm -p 6).",
    ),
    Code.BROKER_UNREADABLE: Meaning(
        "The broker is not readable", _BLOCKED, "Set its brokerPermission to 6, or 4 to read only."
    ),
    Code.NOBODY_CONSUMES: Meaning(
        "No group consumes the topic",
        _BLOCKED,
        "Start a consumer that subscribes the topic. With CONSUME_FROM_FIRST_OFFSET it begins with "
        "the oldest message.",
    ),
    # -- a group ----------------------------------------------------------------------------------
    Code.CONSUMED: Meaning("Consumed", _OK, "Nothing: the group has it."),
    Code.BROADCASTING: Meaning(
        "Broadcast",
        _OK,
        "Every member gets it and keeps its own progress; what each says stands beside it. Members "
        "that were not there when it came have missed it.",
    ),
    Code.FILTERED_BY_TAG: Meaning(
        "Filtered by tag",
        _OK,
        "The subscription does not want this tag. If it should, change the expression and reset "
        "the group's offset to before the message.",
    ),
    Code.FILTERED_BY_SQL: Meaning(
        "Filtered by SQL92",
        _OK,
        "The expression is not true for its properties. If it should be, change the expression and "
        "reset the group's offset to before the message.",
    ),
    Code.FILTERED_BY_FILTER: Meaning(
        "Filtered by the group's filter",
        _OK,
        "The filter said no. Try another version on it (kourou admin filter try), enable that, and "
        "reset the group's offset to before the message.",
    ),
    Code.FILTER_SKIPPED: Meaning(
        "Passed over by the filter's policy",
        _GONE,
        "The filter could not judge it and the policy is skip. Mend the filter and reset the "
        "group's offset to before the message.",
    ),
    Code.FILTER_MISSING: Meaning(
        "The filter does not exist",
        _BLOCKED,
        "The group names a filter that the broker does not have. Upload it (kourou admin filter "
        "put), or start a consumer that brings it.",
    ),
    Code.FILTER_DISABLED: Meaning(
        "The filter is disabled",
        _BLOCKED,
        "No version runs, so the group waits. Enable one (kourou admin filter enable).",
    ),
    Code.FILTER_QUARANTINED: Meaning(
        "The filter is in quarantine",
        _BLOCKED,
        "The group waits (policy hold). Upload a mended version, roll back to the one before, or "
        "choose the policy skip or pass (kourou admin filter).",
    ),
    Code.FILTER_HOLDS: Meaning(
        "The filter cannot judge",
        _BLOCKED,
        "The group waits before what its filter cannot judge, or no filter server answers: kourou "
        "admin filter list, kourou admin filter stats.",
    ),
    Code.PASSED_UNFILTERED: Meaning(
        "Let through unfiltered",
        _OK,
        "The version that runs is in quarantine and the policy is pass: the group gets everything. "
        "Upload a mended version.",
    ),
    Code.RESET_PAST: Meaning(
        "The group was reset past it",
        _GONE,
        "Somebody moved the group's offset to behind it. Reset it to the time of the message, or "
        "undo that decision (kourou undo), if the group should have it.",
    ),
    Code.SKIPPED_BY_CONSUME_FROM_LAST: Meaning(
        "The group began behind it",
        _GONE,
        "A new group with CONSUME_FROM_LAST_OFFSET begins at the end. Reset its offset to the time "
        "of the message, or begin with CONSUME_FROM_FIRST_OFFSET.",
    ),
    Code.IN_RETRY: Meaning(
        "Waits for another attempt",
        _WAITING,
        "A handler failed; it comes again by itself at the time named.",
    ),
    Code.RETRY_DUE: Meaning(
        "Another attempt is due",
        _WAITING,
        "It lies in the group's retry topic, which every member consumes: is a member there, and "
        "does it keep up?",
    ),
    Code.DEAD_LETTERED: Meaning(
        "A dead letter",
        _GONE,
        "Its attempts are used up, or the handler gave it up. Look at the reason, mend that, and "
        "send it again (kourou admin resendDeadLetters).",
    ),
    Code.DEAD_LETTER_DEALT_WITH: Meaning(
        "A dead letter that was dealt with",
        _GONE,
        "Somebody has moved the group's mark behind it. It can still be sent again.",
    ),
    Code.REDRIVEN: Meaning(
        "A dead letter that was sent again",
        _WAITING,
        "It is in the group's retry topic once more, with its attempts counted anew.",
    ),
    Code.GROUP_UNKNOWN: Meaning(
        "No such group", _BLOCKED, "Check the name; a group comes to exist with its first member."
    ),
    Code.CONSUMPTION_DISABLED: Meaning(
        "Consumption is suspended",
        _BLOCKED,
        "Let the group consume again: consumeEnable (kourou admin updateSubGroup).",
    ),
    Code.BROADCAST_FORBIDDEN: Meaning(
        "The group may not broadcast",
        _BLOCKED,
        "Allow it (consumeBroadcastEnable), or consume in clustering mode.",
    ),
    Code.NO_MEMBER: Meaning("The group has no member", _BLOCKED, "Start a consumer of the group."),
    Code.NOT_SUBSCRIBED: Meaning(
        "The group does not subscribe the topic",
        _BLOCKED,
        "Its members want other topics. Subscribe this one, in all members alike.",
    ),
    Code.SUBSCRIPTIONS_CLASH: Meaning(
        "Its members want different things",
        _BLOCKED,
        "All members of a group have to subscribe the same. Give those that differ a group of "
        "their own, or the same subscription.",
    ),
    Code.PULL_CONSUMER: Meaning(
        "The group pulls for itself",
        _WAITING,
        "Its program decides what it reads and when; its committed offset is all that is known.",
    ),
    Code.MEMBER_SILENT: Meaning(
        "A member does not answer",
        _BLOCKED,
        "It is connected and says nothing: it may be frozen or overloaded. End it; the others take "
        "its queues.",
    ),
    Code.QUEUE_UNASSIGNED: Meaning(
        "No member consumes its queue",
        _BLOCKED,
        "Right after a member came or went this lasts a moment. If it stays so, allocation or "
        "subscriptions differ between members.",
    ),
    Code.QUEUE_LOCKED: Meaning(
        "Another member holds the queue's lock",
        _WAITING,
        "Ordered consumers wait until the lock is given back, or lapses a minute after its holder "
        "was last heard. A holder that lives gives it back when its handler ends.",
    ),
    Code.ORDERED_RETRY: Meaning(
        "An ordered queue waits for another attempt",
        _WAITING,
        "For the sake of order nothing behind the failed message is delivered. Mend the handler; "
        "maxReconsumeTimes makes it a dead letter after so many attempts.",
    ),
    Code.FLOW_CONTROLLED: Meaning(
        "Paused by flow control",
        _WAITING,
        "The member has as much of the queue as it takes at once (pullThresholdForQueue, "
        "pullThresholdSizeForQueue, consumeConcurrentlyMaxSpan). Make handlers faster, or add "
        "members.",
    ),
    Code.MEMBER_STUCK: Meaning(
        "A handler is stuck",
        _BLOCKED,
        "The smallest unfinished message has not moved for long. Look at that member's stacks "
        "(kourou admin consumerStatus -s); after consumeTimeout it is given back.",
    ),
    Code.IN_HANDS: Meaning(
        "Being consumed", _WAITING, "A member has it and has not finished it yet."
    ),
    Code.WAITING_BEHIND: Meaning(
        "Waits its turn",
        _WAITING,
        "Others are before it in its queue. If the distance grows, add members or queues.",
    ),
    Code.UNDECIDED: Meaning(
        "Not to be told", _WAITING, "Too little could be asked now: see what is missing."
    ),
}
