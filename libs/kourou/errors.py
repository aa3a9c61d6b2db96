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
     ├─ Unavailable           nobody is wrong: later, or elsewhere, it may work
     │   ├─ Throttled         too much at once (queue full, memory budget, flow control)
     │   ├─ NotLeader         another broker takes writes for this log
     │   ├─ DiskFull          writes are refused until space is freed; reads go on
     │   ├─ StoreFaulted      an fsync failed; this process stores nothing more
     │   └─ MetadataUnavailable  the event database cannot be reached
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
    """Response codes, RocketMQ's numbers first (4.9 `ResponseCode`), ours from 30000 up."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    FLOW_CONTROL = 215
    # Kourou's own; a RocketMQ client sees them only where it can do nothing better anyway.
    MESSAGE_CORRUPT = 30000
    STORE_FAULTED = 30001
    DISK_FULL = 30002
    METADATA_UNAVAILABLE = 30003
    POLLING_FULL = 30004
    DEADLINE_PASSED = 30005
    OUTCOME_UNKNOWN = 30006


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
    """The caller must change the request; repeating it unchanged cannot work."""


class BadRequest(Rejected):
    """A field is missing, malformed or out of range."""


class MessageIllegal(Rejected):
    """A message breaks a limit; nothing was stored."""

    code = Code.MESSAGE_ILLEGAL


class TopicNotFound(Rejected):
    """The topic does not exist here and may not be created on demand."""

    code = Code.TOPIC_NOT_EXIST


class NoPermission(Rejected):
    """The permission of the topic, group or broker forbids this."""

    code = Code.NO_PERMISSION


class GroupNotFound(Rejected):
    """The consumer group does not exist and may not be created on demand."""

    code = Code.SUBSCRIPTION_GROUP_NOT_EXIST


class ConfigError(Rejected):
    """A setting is unknown, mistyped, out of range, or may not be changed this way."""


class Unavailable(KourouError):
    """Nobody is wrong: later, or at another broker, the same request may work."""

    code = Code.SERVICE_NOT_AVAILABLE
    retryable = True

    def __init__(
        self, message: str, *, hint: str = "", code: Code | None = None, retry_after_ms: int = 0
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.retry_after_ms = retry_after_ms


class Throttled(Unavailable):
    """Too much at once; the text names the limit."""

    code = Code.SYSTEM_BUSY


class NotLeader(Unavailable):
    """Another broker takes the writes of this log."""


class DiskFull(Unavailable):
    """Writes are refused until space is freed; nothing was stored."""

    code = Code.DISK_FULL


class StoreFaulted(Unavailable):
    """An fsync failed; this process acknowledges nothing more and is about to exit."""

    code = Code.STORE_FAULTED


class MetadataUnavailable(Unavailable):
    """The event database cannot be reached; the data path goes on."""

    code = Code.METADATA_UNAVAILABLE


class UnknownOutcome(KourouError):
    """The request may or may not have taken effect."""

    code = Code.OUTCOME_UNKNOWN
    retryable = True


class TimedOut(UnknownOutcome):
    """No answer came within the deadline."""


class Corrupt(KourouError):
    """Bytes fail their check; an operator or a replica must help."""

    code = Code.MESSAGE_CORRUPT


class DecodeError(Corrupt):
    """Foreign bytes are not what they claim to be; the text says where and what."""


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
