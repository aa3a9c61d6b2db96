"""The facts about one message that brokers and consumers reported.

None means unknown, never no: `MessageFacts.missing` lists what is missing and why. Times are ms
since the epoch, sizes and positions are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kourou.client.introspection.running_info import OrderedWait
from kourou.model.filter import FilterState
from kourou.model.subscription import (
    ConsumeFromWhere,
    ConsumeType,
    GroupConfig,
    MessageModel,
    Subscription,
)
from kourou.model.topic import MessageQueue


@dataclass(frozen=True, slots=True)
class MissingFact:
    """A missing fact: which request failed, and why."""

    what: str
    why: str


# -- the message ----------------------------------------------------------------------------------


class Form(StrEnum):
    """How the text that identifies a message was interpreted."""

    PLACE = "place"
    OFFSET_ID = "offset_id"
    KEY = "key"  # a unique key or a business key: both are looked up in the key index


@dataclass(frozen=True, slots=True)
class Lookup:
    """How a message was looked up.

    `brokers` replied; for those in `unreachable` no replica replied. `bounds` are the lowest offset
    and the end of a given queue, None if it has none. For a message given by its queue and offset,
    `topic_known` and `queue_known` tell whether those exist, `queues` is the number of queues of
    its topic at the broker, and `damage` describes how the record is damaged. If the message is not
    committed, `behind` lists the followers that lack a part of the log, and `flushed` tells whether
    the leader has flushed all of it. `host` is the host in an offset message ID.
    """

    form: Form
    brokers: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    topic: str | None = None
    topics_searched: int = 0
    topic_known: bool = True
    place: tuple[MessageQueue, int] | None = None
    broker_known: bool = True
    queue_known: bool = True
    queues: int | None = None
    bounds: tuple[int, int] | None = None
    damage: str = ""
    behind: tuple[str, ...] = ()
    flushed: bool | None = None
    host: str = ""
    host_known: bool = True
    reserved_hours: int | None = None


class CopyKind(StrEnum):
    """The kind of one stored copy of a message."""

    SENT = "sent"  # in its original topic, which groups consume
    DELAYED = "delayed"  # waiting for its delivery time
    HALF = "half"  # waiting for its transaction
    GIVEN_UP = "given_up"  # a half message whose outcome no producer reported
    RETRY_WAIT = "retry_wait"  # waiting for the group's next attempt
    RETRY = "retry"  # in the group's retry topic
    DEAD_LETTER = "dead_letter"  # in the group's dead-letter topic


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """One stored copy; `group` is the group of a retry or a dead letter."""

    kind: CopyKind
    queue: MessageQueue
    offset: int
    position: int
    size_bytes: int
    stored_ms: int
    born_ms: int
    attempts: int
    message_id: str
    offset_message_id: str
    properties: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None

    @property
    def end(self) -> int:
        """The log position at the end of its record."""
        return self.position + self.size_bytes

    def __str__(self) -> str:
        return f"{self.queue!s}@{self.offset}"


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """One replica of the log and its state of the message; `why` explains values that are None."""

    broker_id: int
    address: str
    leads: bool
    state: str = ""
    written: bool | None = None
    flushed: bool | None = None
    in_sync: bool | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Storage:
    """The message's position in the log, and its replicas. `by_leader`: the leader reported it."""

    position: int
    end: int
    flushed: bool | None
    confirmed: bool | None
    copies: tuple[ReplicaCopy, ...] = ()
    by_leader: bool = True


class HalfState(StrEnum):
    """The state of a half message."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    GIVEN_UP = "given_up"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Half:
    """A half message; `producers` is the number of connected producers that can be asked."""

    state: HalfState
    group: str
    checks: int
    place: StoredCopy
    producers: int | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """The delay of a message: its level, when it is due, and whether it was delivered."""

    level: int
    due_ms: int | None
    place: StoredCopy
    delivered: bool


# -- a group --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueAtMember:
    """The message's queue as its consumer sees it; `first` is None if nothing is cached.

    `since_ms` is the time since when the smallest unfinished message has been the smallest, if the
    consumer reports it.
    """

    commit_offset: int
    cached: int = 0
    first: int | None = None
    last: int | None = None
    cached_mib: int = 0
    locked: bool = False
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """One consumer. `silent` is the reason why it did not reply; then only its ID is known.

    `subscription` is its own for the topic, None if it does not subscribe to it. `queue` is None if
    the message's queue is not assigned to it. `filter_waits` is the error that it reports for a
    filter that cannot be evaluated. The `_max` fields are the thresholds of its pulls.
    """

    client_id: str
    silent: str = ""
    subscription: Subscription | None = None
    queue: QueueAtMember | None = None
    ordered: bool = False
    waits: OrderedWait | None = None
    filter_waits: str = ""
    count_max: int | None = None
    span_max: int | None = None
    size_mib_max: int | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """A change of the group's offset in the message's queue: from, to, actor and time."""

    at_ms: int
    actor: str
    reason: str
    before: int | None
    after: int | None
    event: int


@dataclass(frozen=True, slots=True)
class Skip:
    """A filter server skipped the message because the filter failed on it."""

    at_ms: int
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The current result of a filter's active version; None if it cannot be evaluated."""

    version: int
    passed: bool | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FilterFacts:
    """The filter that the group uses. `state` is None if the broker has no filter of that name."""

    name: str
    state: FilterState | None
    servers: int | None = None
    filter_result: FilterResult | None = None
    skip: Skip | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One call of a handler, from the message trace; `ok` is None while it has not ended."""

    at_ms: int
    attempt: int
    ended_ms: int | None = None
    ok: bool | None = None
    how: str | None = None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group and the message.

    `config` is None if the broker does not have the group. `online` is False if no consumer is
    connected. `next_offset` is the next offset that the group will receive of the message's queue;
    `retry_next` is the same of the queue of its newest retry, `dealt_with` of its dead-letter
    queue. `created_ms` is when the broker first received a request of the group. `had_progress`
    tells whether the group had a committed offset in the queue just after the message was stored.
    `lock_owner` is the client that has locked the queue for orderly consumption.
    """

    name: str
    config: GroupConfig | None = None
    online: bool | None = None
    model: MessageModel = MessageModel.CLUSTERING
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    start_from: ConsumeFromWhere | None = None
    subscription: Subscription | None = None
    members: tuple[ConsumerFacts, ...] = ()
    next_offset: int | None = None
    queue_end: int | None = None
    retry_next: int | None = None
    dealt_with: int | None = None
    created_ms: int | None = None
    had_progress: bool | None = None
    resets: tuple[Reset, ...] = ()
    lock_owner: str | None = None
    filter: FilterFacts | None = None
    deliveries: tuple[Delivery, ...] = ()


# -- all facts ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """All known facts. `message` is None if no message was found.

    `places` are all stored copies, oldest first. `readable` and `broker_readable` are the read
    permissions of topic and broker; `read_queues` is the topic's number of readable queues there.
    `others` is the number of further messages with the given business key. `groups_known` is False
    if the groups of the topic could not be requested.
    """

    asked: str
    as_of_ms: int
    lookup: Lookup
    message: StoredCopy | None = None
    places: tuple[StoredCopy, ...] = ()
    others: int = 0
    storage: Storage | None = None
    half: Half | None = None
    delay: Delay | None = None
    readable: bool | None = None
    read_queues: int | None = None
    broker_readable: bool | None = None
    delay_levels_ms: tuple[int, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    groups_cut: bool = False
    groups_known: bool = True
    missing: tuple[MissingFact, ...] = ()
