"""All errors of Kourou, and the party that must act on each.

    KourouError
     ├─ Rejected              the request is wrong: repeating it unchanged does not help
     │   ├─ BadRequest        a field is missing, malformed or out of range
     │   ├─ MessageIllegal    a message breaks a limit; nothing was stored
     │   ├─ TopicNotFound     the topic does not exist (and may not be created on demand)
     │   ├─ NoPermission      the topic, group or broker does not allow this
     │   ├─ GroupNotFound     the consumer group does not exist
     │   └─ ConfigError       a setting is unknown, mistyped, out of range or may not be changed
     │       └─ MissingPackages  an optional group of packages is not installed
     ├─ Unavailable           the request is right: later, or at another broker, it may work
     │   ├─ Throttled         too much at once (queue full, memory budget, flow control)
     │   ├─ NotLeader         another broker accepts the writes of this log
     │   ├─ DiskFull          writes are refused until space is freed; reads continue
     │   ├─ StoreFaulted      an fsync failed; this process stores nothing more
     │   ├─ MetadataUnavailable  the event database cannot be reached
     │   └─ FilterFailed      a group's filter failed: its author or an operator must fix it
     ├─ UnknownOutcome        it may or may not have happened
     │   └─ TimedOut          no reply within the deadline
     └─ Corrupt               bytes fail their check: an operator or a replica must repair them
         └─ DecodeError       received bytes have an invalid format

A broken internal invariant is an `assert`: the process stops and recovers from the log.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class Code(IntEnum):
    """Response codes: RocketMQ's (4.9 `ResponseCode`), and Kourou's own from 30000 up.

    Each comment says when the code is returned; [RMQ] marks codes that this version never returns.
    """

    SUCCESS = 0  # done
    SYSTEM_ERROR = 1  # the request cannot be processed, or an internal error; the text says which
    SYSTEM_BUSY = 2  # too much at once; the text names the limit; nothing was done
    REQUEST_CODE_NOT_SUPPORTED = 3  # this server does not support such requests
    TRANSACTION_FAILED = 4  # [RMQ] a half message was not prepared
    FLUSH_DISK_TIMEOUT = 10  # stored, but not on disk within syncFlushTimeout
    SLAVE_NOT_AVAILABLE = 11  # stored, but no follower is connected to replicate it
    FLUSH_SLAVE_TIMEOUT = 12  # stored, but no follower replicated it within slaveTimeout
    MESSAGE_ILLEGAL = 13  # the message breaks a limit; nothing was stored
    SERVICE_NOT_AVAILABLE = 14  # starting, a follower, or the disk is full; nothing was stored
    VERSION_NOT_SUPPORTED = 15  # [RMQ] the client is too old or too new
    NO_PERMISSION = 16  # the topic, the group, the broker or the setting does not allow it
    TOPIC_NOT_EXIST = 17  # the topic does not exist, and may not be created on demand
    TOPIC_EXIST_ALREADY = 18  # [RMQ] the topic exists already
    PULL_NOT_FOUND = 19  # no message yet; the time of long polling is over
    PULL_RETRY_IMMEDIATELY = 20  # no message matches the subscription: continue after them
    PULL_OFFSET_MOVED = 21  # the offset is outside the queue; the reply has the next one
    QUERY_NOT_FOUND = 22  # nothing is stored for this key, name or offset
    SUBSCRIPTION_PARSE_FAILED = 23  # the subscription's expression cannot be parsed
    SUBSCRIPTION_NOT_EXIST = 24  # the group has not subscribed to the topic: send a heartbeat first
    SUBSCRIPTION_NOT_LATEST = 25  # the subscription is newer than the last heartbeat
    SUBSCRIPTION_GROUP_NOT_EXIST = 26  # the group does not exist, and may not be created on demand
    FILTER_DATA_NOT_EXIST = 27  # the filter is SQL, and no heartbeat has sent it yet
    FILTER_DATA_NOT_LATEST = 28  # [RMQ] the filter's compiled form is older than the subscription
    CONSUMER_NOT_ONLINE = 206  # no consumer of the group is connected
    CONSUME_MSG_TIMEOUT = 207  # the consumer did not respond in time
    NO_MESSAGE = 208  # [RMQ] there is no message to deliver
    ACL_UPDATE_FAILED = 209  # the account is not valid; nothing was changed
    ACL_DELETE_FAILED = 210  # the account cannot be deleted; nothing was changed
    WHITE_ADDRS_UPDATE_FAILED = 211  # an address never replaces credentials; nothing was changed
    FLOW_CONTROL = 215  # over a quota; the text says which, and when to try again; nothing was done
    # Kourou's own; a RocketMQ client receives them only if no code of RocketMQ fits.
    MESSAGE_CORRUPT = 30000  # the messages there fail their check; they are quarantined
    STORE_FAULTED = 30001  # an fsync failed; nothing was stored
    DISK_FULL = 30002  # the disk is too full; nothing was stored
    METADATA_UNAVAILABLE = 30003  # the event database cannot be reached
    POLLING_FULL = 30004  # no message yet, and too many pulls are waiting already
    DEADLINE_PASSED = 30005  # the request arrived after its deadline; nothing was done
    OUTCOME_UNKNOWN = 30006  # the store failed before the reply: it may be stored, or not
    FILTER_FAILED = 30007  # the group's filter failed; the text says why; the offset stays


class KourouError(Exception):
    """The base class of all errors; `code` is sent on the wire, `retryable`: a retry can help."""

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
    """The topic does not exist and may not be created on demand.

    Do: Create the topic (`kourou admin updateTopic`), or correct its name.
    """

    code = Code.TOPIC_NOT_EXIST


class NoPermission(Rejected):
    """The permission of the topic, group or broker forbids this.

    Do: Ask the operator of the broker: 4 in `perm` of a topic and in brokerPermission allows
    reads, 2 allows writes.
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
    """The request is right: later, or at another broker, it may work.

    Do: Retry later. A producer has used all its attempts when it raises this.
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

    Do: Slow down and retry. If it persists, find the client that sends too much, or raise the
    limit.
    """

    code = Code.SYSTEM_BUSY


class NotLeader(Unavailable):
    """Another broker accepts the writes of this log.

    Do: Get the route from a name server again, and send the request to that broker.
    """


class DiskFull(Unavailable):
    """Writes are refused until space is freed; nothing was stored.

    Do: An operator frees space or lowers fileReservedTime. Reads continue in the meantime.
    """

    code = Code.DISK_FULL


class StoreFaulted(Unavailable):
    """An fsync failed; this process acknowledges nothing more and is about to exit.

    Do: Send to another broker. An operator repairs the disk and restarts this one.
    """

    code = Code.STORE_FAULTED


class MetadataUnavailable(Unavailable):
    """The event database cannot be reached; messages are not affected.

    Do: An operator repairs the database of eventStoreUrl. Sending and consuming continue.
    """

    code = Code.METADATA_UNAVAILABLE


class FilterFailed(Unavailable):
    """A consumer group's filter failed for the messages at an offset; the offset stays.

    `kind` is one word (missing, disabled, quarantined, raised, timeout, memory, died, lied, setup),
    `filter_version` the version that failed, None where none ran. Nothing was delivered unfiltered,
    and nothing is lost.

    Do: The filter's author uploads a fixed version, or an operator enables another one or changes
    the filter's policy (`kourou admin filter`). Then pull again from the same offset.
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

    Do: Check whether it took effect before repeating what must not happen twice.
    """

    code = Code.OUTCOME_UNKNOWN
    retryable = True


class TimedOut(UnknownOutcome):
    """No reply arrived within the deadline.

    Do: As for UnknownOutcome. If a server is only slow, a longer deadline helps.
    """


class Corrupt(KourouError):
    """Bytes fail their check; an operator or a replica must repair them.

    Do: Do not repeat it. The log of the process that read the bytes says where the damage is.
    """

    code = Code.MESSAGE_CORRUPT


class DecodeError(Corrupt):
    """Received bytes have an invalid format; the text says where and what.

    Do: Find out what wrote them: another program, another version, or a broken disk.
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


def error_from_code(code: int, message: str, retry_after_ms: int = 0) -> KourouError:
    """The error for the response code of a server, as the class that a caller can catch.

    `retry_after_ms` is set in an error of the class Unavailable.
    """
    known = code in Code._value2member_map_
    wire = Code(code) if known else Code.SYSTEM_ERROR
    text = message or (wire.name if known else f"response code {code}")
    error = _BY_CODE.get(code, Rejected)(text, code=wire)
    if retry_after_ms and isinstance(error, Unavailable):
        error.retry_after_ms = retry_after_ms
    return error
