"""Every error of Kourou, and who must act on it.

Lives here: the tree below and the response codes that travel on the wire.
May not live here: messages of a single feature; they are given when the error is raised.

    KourouError
     ├─ Rejected              the caller is wrong: changing nothing and asking again will not help
     │   ├─ BadRequest        a field is missing, malformed or out of range
     │   ├─ MessageIllegal    a message breaks a limit; nothing was stored
     │   ├─ TopicNotFound     no such topic here (and it may not be created on demand)
     │   ├─ NoPermission      the topic, group or broker does not allow this
     │   ├─ GroupNotFound     no such consumer group
     │   └─ ConfigError       a setting is unknown, mistyped, out of range or may not be changed
     │       └─ MissingPackages  an optional group of packages is not installed
     ├─ Unavailable           nobody is wrong: later, or elsewhere, it may work
     │   ├─ Throttled         too much at once (queue full, memory budget, flow control)
     │   ├─ NotLeader         another broker takes writes for this log
     │   ├─ DiskFull          writes are refused until space is freed; reads go on
     │   ├─ StoreFaulted      an fsync failed; this process stores nothing more
     │   ├─ MetadataUnavailable  the event database cannot be reached
     │   └─ FilterFailed      a group's filter cannot judge: its author or an operator mends it
     ├─ UnknownOutcome        it may or may not have happened
     │   └─ TimedOut          no answer within the deadline
     └─ Corrupt               these bytes fail their check: an operator or a replica must help
         └─ DecodeError       foreign bytes that are not what they claim to be

A broken invariant of our own is an `assert`: the process stops and recovers from the log.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class Code(IntEnum):
    """Response codes, RocketMQ's numbers first (4.9 `ResponseCode`), ours from 30000 up.

    Each says when it is given; [RMQ] marks those that servers of this version never give.
    """

    SUCCESS = 0  # done
    SYSTEM_ERROR = 1  # the request cannot be done as it is, or something broke; the text says what
    SYSTEM_BUSY = 2  # too much at once; the text names the limit; nothing was done
    REQUEST_CODE_NOT_SUPPORTED = 3  # this server does not answer such requests
    TRANSACTION_FAILED = 4  # [RMQ] a half message was not prepared
    FLUSH_DISK_TIMEOUT = 10  # stored, but not on disk within syncFlushTimeout
    SLAVE_NOT_AVAILABLE = 11  # stored, but no follower is there to copy it
    FLUSH_SLAVE_TIMEOUT = 12  # stored, but no follower copied it within slaveTimeout
    MESSAGE_ILLEGAL = 13  # the message breaks a limit; nothing was stored
    SERVICE_NOT_AVAILABLE = 14  # it starts, follows, or its disk is full; nothing was stored
    VERSION_NOT_SUPPORTED = 15  # [RMQ] the client is too old or too new
    NO_PERMISSION = 16  # the topic, the group, the broker or the setting does not allow it
    TOPIC_NOT_EXIST = 17  # no such topic here, and it may not be made by asking
    TOPIC_EXIST_ALREADY = 18  # [RMQ] the topic is there already
    PULL_NOT_FOUND = 19  # no message yet; a held pull's time is over
    PULL_RETRY_IMMEDIATELY = 20  # messages are there and none of them is wanted: go on behind them
    PULL_OFFSET_MOVED = 21  # the offset lies outside the queue; the answer says where to go on
    QUERY_NOT_FOUND = 22  # nothing is kept under this key, name or offset
    SUBSCRIPTION_PARSE_FAILED = 23  # the subscription's expression cannot be read
    SUBSCRIPTION_NOT_EXIST = 24  # the group has not subscribed the topic: a heartbeat comes first
    SUBSCRIPTION_NOT_LATEST = 25  # the subscription is newer than the last heartbeat
    SUBSCRIPTION_GROUP_NOT_EXIST = 26  # no such consumer group, and it may not be made by asking
    FILTER_DATA_NOT_EXIST = 27  # the filter is SQL, and no heartbeat has brought it yet
    FILTER_DATA_NOT_LATEST = 28  # [RMQ] the filter's compiled form is older than the subscription
    CONSUMER_NOT_ONLINE = 206  # no member of the group is connected
    CONSUME_MSG_TIMEOUT = 207  # the member that was asked did not answer in time
    NO_MESSAGE = 208  # [RMQ] there is nothing to hand over
    FLOW_CONTROL = 215  # [RMQ] the server slows its clients down
    # Kourou's own; a RocketMQ client sees them only where it can do nothing better anyway.
    MESSAGE_CORRUPT = 30000  # the messages there fail their check; they are kept aside
    STORE_FAULTED = 30001  # an fsync failed; nothing was stored
    DISK_FULL = 30002  # the disk is too full; nothing was stored
    METADATA_UNAVAILABLE = 30003  # the event database cannot be reached now
    POLLING_FULL = 30004  # no message yet, and too many pulls are held already
    DEADLINE_PASSED = 30005  # the request arrived after its deadline; nothing was done
    OUTCOME_UNKNOWN = 30006  # the store failed before the answer: it may be kept, or not
    FILTER_FAILED = 30007  # the group's filter cannot judge; the text says why; the offset stays


class KourouError(Exception):
    """Root of the tree; `code` is what travels, `retryable` says whether trying again can help."""

    code: ClassVar[Code] = Code.SYSTEM_ERROR
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", code: Code | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.wire_code: Code = self.code if code is None else code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class Rejected(KourouError):
    """The caller must change the request; repeating it unchanged cannot work.

    Do: The text says what is wrong; the hint, if there is one, what to do instead.
    """


class BadRequest(Rejected):
    """A field is missing, malformed or out of range.

    Do: Correct the field that the text names.
    """


class MessageIllegal(Rejected):
    """A message breaks a limit; nothing was stored.

    Do: Make the message smaller, or correct what the text names.
    """

    code = Code.MESSAGE_ILLEGAL


class TopicNotFound(Rejected):
    """The topic does not exist here and may not be created on demand.

    Do: Create the topic (`kourou admin updateTopic`), or correct its name.
    """

    code = Code.TOPIC_NOT_EXIST


class NoPermission(Rejected):
    """The permission of the topic, group or broker forbids this.

    Do: Ask whoever runs the broker: `perm` of a topic and brokerPermission allow 4 to read, 2
    to write.
    """

    code = Code.NO_PERMISSION


class GroupNotFound(Rejected):
    """The consumer group does not exist and may not be created on demand.

    Do: Create the group (`kourou admin updateSubGroup`), or correct its name.
    """

    code = Code.SUBSCRIPTION_GROUP_NOT_EXIST


class ConfigError(Rejected):
    """A setting is unknown, mistyped, out of range, or may not be changed this way.

    Do: Correct the setting that the text names; `-m` prints every setting.
    """


class MissingPackages(ConfigError):
    """Packages of an optional group are not installed; `group` is the extra of pyproject.toml.

    Do: Install the group that the text names. In a checkout `./kourou` does so by itself.
    """

    def __init__(self, message: str, group: str) -> None:
        super().__init__(
            message,
            hint=f"pip install 'kourou[{group}]', or in a checkout: "
            f"KOUROU_GROUPS={group} ./kourou --version",
        )
        self.group = group


class Unavailable(KourouError):
    """Nobody is wrong: later, or at another broker, the same request may work.

    Do: Try again later. A producer has tried its other attempts by then.
    """

    code = Code.SERVICE_NOT_AVAILABLE
    retryable = True

    def __init__(
        self, message: str, *, hint: str = "", code: Code | None = None, retry_after_ms: int = 0
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.retry_after_ms = retry_after_ms


class Throttled(Unavailable):
    """Too much at once; the text names the limit.

    Do: Slow down and try again. If it stays so, find out who sends so much, or raise that
    limit.
    """

    code = Code.SYSTEM_BUSY


class NotLeader(Unavailable):
    """Another broker takes the writes of this log.

    Do: Ask a name server for the route once more, and that broker.
    """


class DiskFull(Unavailable):
    """Writes are refused until space is freed; nothing was stored.

    Do: An operator frees space or shortens fileReservedTime. Reads go on meanwhile.
    """

    code = Code.DISK_FULL


class StoreFaulted(Unavailable):
    """An fsync failed; this process acknowledges nothing more and is about to exit.

    Do: Send to another broker. An operator mends the disk and starts this one again.
    """

    code = Code.STORE_FAULTED


class MetadataUnavailable(Unavailable):
    """The event database cannot be reached; the data path goes on.

    Do: An operator looks after the database of eventStoreUrl. Messages are not concerned.
    """

    code = Code.METADATA_UNAVAILABLE


class FilterFailed(Unavailable):
    """A consumer group's filter cannot judge the messages at an offset; the offset stays.

    `kind` is one word (missing, disabled, quarantined, raised, timeout, memory, died, lied, setup),
    `filter_version` the version that failed, None where none ran. Nothing was delivered unfiltered,
    and nothing is lost.

    Do: The filter's author uploads a fixed version, or an operator enables another one or changes
    the filter's policy (`kourou admin filter`). Then ask again from the same offset.
    """

    code = Code.FILTER_FAILED

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: Code | None = None,
        retry_after_ms: int = 0,
        kind: str = "",
        filter_version: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code, retry_after_ms=retry_after_ms)
        self.kind = kind
        self.filter_version = filter_version


class UnknownOutcome(KourouError):
    """The request may or may not have taken effect.

    Do: Find out whether it happened before repeating what must not happen twice.
    """

    code = Code.OUTCOME_UNKNOWN
    retryable = True


class TimedOut(UnknownOutcome):
    """No answer came within the deadline.

    Do: As for UnknownOutcome. A longer deadline helps where a server is only slow.
    """


class Corrupt(KourouError):
    """Bytes fail their check; an operator or a replica must help.

    Do: Do not repeat it. The log of whoever read the bytes says where the damage lies.
    """

    code = Code.MESSAGE_CORRUPT


class DecodeError(Corrupt):
    """Foreign bytes are not what they claim to be; the text says where and what.

    Do: Find out who wrote them: another program, another version, or a broken disk.
    """


_BY_CODE: dict[int, type[KourouError]] = {
    Code.MESSAGE_ILLEGAL: MessageIllegal,
    Code.TOPIC_NOT_EXIST: TopicNotFound,
    Code.NO_PERMISSION: NoPermission,
    Code.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFound,
    Code.SERVICE_NOT_AVAILABLE: Unavailable,
    Code.SYSTEM_BUSY: Throttled,
    Code.FLOW_CONTROL: Throttled,
    Code.DISK_FULL: DiskFull,
    Code.STORE_FAULTED: StoreFaulted,
    Code.METADATA_UNAVAILABLE: MetadataUnavailable,
    Code.FILTER_FAILED: FilterFailed,
    Code.MESSAGE_CORRUPT: Corrupt,
    Code.DEADLINE_PASSED: TimedOut,
    Code.OUTCOME_UNKNOWN: UnknownOutcome,
}


def error_from_code(code: int, message: str) -> KourouError:
    """The error a server named by `code`, as the class a caller can catch."""
    known = code in Code._value2member_map_
    wire = Code(code) if known else Code.SYSTEM_ERROR
    text = message or (wire.name if known else f"response code {code}")
    kind = _BY_CODE.get(code, Rejected)
    return kind(text, code=wire)
