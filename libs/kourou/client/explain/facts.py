"""What was asked about one message, and what came back.

None is a fact that could not be had, never a no: what is missing stands in `Facts.missing` with the
reason. Times are ms since the epoch, sizes and positions bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kourou.client.running_info import OrderedWait
from kourou.model.filter import FilterState
from kourou.model.group import GroupConfig
from kourou.model.queue import MessageQueue
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact that could not be had: who or what was asked, and why there is no answer."""

    what: str
    why: str


# -- the message ----------------------------------------------------------------------------------


class Form(StrEnum):
    """What the text that names a message was taken for."""

    PLACE = "place"
    OFFSET_ID = "offset_id"
    KEY = "key"  # a unique key or a business key: both are looked up in the key index


@dataclass(frozen=True, slots=True)
class Lookup:
    """How a message was looked for.

    `brokers` answered, `away` are the names that nobody answered for. `bounds` are those of a named
    queue, lowest offset and end; None while it has none. `topic_known` and `queue_known` are about
    a place, and `queues` says how many its topic has at its broker; `damage` says how the bytes
    there fail. Where it is not confirmed, `behind` are the followers that lack a part of the log,
    and `flushed` says whether its leader has all on disk. `host` is that of an offset message id.
    """

    form: Form
    brokers: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
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


class Kind(StrEnum):
    """What one stored copy of a message is."""

    SENT = "sent"  # in the topic that it was sent to: what groups consume
    DELAYED = "delayed"  # waits for its time before it goes there
    HALF = "half"  # waits for its transaction
    GIVEN_UP = "given_up"  # a half message of which nobody could tell the outcome
    RETRY_WAIT = "retry_wait"  # waits for a group's next attempt
    RETRY = "retry"  # in the group's retry topic
    DEAD_LETTER = "dead_letter"  # in the group's dead-letter topic


@dataclass(frozen=True, slots=True)
class Place:
    """One stored copy; `group` is that of a retry or a dead letter."""

    kind: Kind
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
        """The log position behind its record."""
        return self.position + self.size_bytes

    def __str__(self) -> str:
        return f"{self.queue!s}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Copy:
    """One member of the broker's log and what it has of the message; `why` of what is None."""

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
    """Where the message lies in the log, at which members. `by_leader`: the leader said so."""

    position: int
    end: int
    flushed: bool | None
    confirmed: bool | None
    copies: tuple[Copy, ...] = ()
    by_leader: bool = True


class HalfState(StrEnum):
    """What became of a half message."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    GIVEN_UP = "given_up"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Half:
    """A half message; `producers` of its group are connected, who could be asked."""

    state: HalfState
    group: str
    checks: int
    place: Place
    producers: int | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """A message that waits, or waited: since when, and until when."""

    level: int
    due_ms: int | None
    place: Place
    delivered: bool


# -- a group --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueAtMember:
    """The message's queue as the member that consumes it sees it; `first` is None with no cache.

    `since_ms`: so long the smallest unfinished message stands, if the member says that.
    """

    commit_offset: int
    cached: int = 0
    first: int | None = None
    last: int | None = None
    cached_mib: int = 0
    locked: bool = False
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One member. `silent` says why it did not answer; then only its id is known.

    `subscription` is its own to the topic, None if it does not subscribe it. `queue` is None if it
    does not consume the message's queue. `filter_waits` is what it says of a filter that cannot
    judge. Thresholds are those of its pulls.
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
    """Somebody moved the group in the message's queue: from where to where, who and when."""

    at_ms: int
    actor: str
    reason: str
    before: int | None
    after: int | None
    event: int


@dataclass(frozen=True, slots=True)
class Skip:
    """A filter server passed the message over, because the filter could not judge it."""

    at_ms: int
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What the active version of a filter says of the message now; None: it cannot judge it."""

    version: int
    passed: bool | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FilterFacts:
    """The filter that the group names. `state` is None where the broker has none of that name."""

    name: str
    state: FilterState | None
    servers: int | None = None
    judged: Judged | None = None
    skip: Skip | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One call of a handler, as the message trace has it; `ok` is None while it has not ended."""

    at_ms: int
    attempt: int
    ended_ms: int | None = None
    ok: bool | None = None
    how: str | None = None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group and the message.

    `config` is None where the broker has no such group. `online` is False while no member is
    connected. `next_offset` is what the group will get next of the message's queue, `retry_next`
    of the queue of its newest retry, `dealt_with` that of its dead-letter queue. `created_ms` is
    when the broker first heard of the group. `had_progress`: had it progress in the queue when the
    message had just been stored? `lock_owner` is the client that consumes the queue in order.
    """

    name: str
    config: GroupConfig | None = None
    online: bool | None = None
    model: MessageModel = MessageModel.CLUSTERING
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    begins: ConsumeFromWhere | None = None
    subscription: Subscription | None = None
    members: tuple[Member, ...] = ()
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


# -- all of it ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known. `message` is None where none was found.

    `places` are all stored copies, the oldest first. `readable` and `broker_readable` are the
    permissions of topic and broker, `read_queues` how many queues of the topic are read there.
    `others` are further messages with the business key that was asked for. `groups_known` is False
    where it could not be asked who consumes the topic.
    """

    asked: str
    as_of_ms: int
    lookup: Lookup
    message: Place | None = None
    places: tuple[Place, ...] = ()
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
    missing: tuple[Missing, ...] = ()
