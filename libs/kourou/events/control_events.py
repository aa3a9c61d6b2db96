"""Decisions of operators, clients and the cluster, stored as immutable events.

Format: docs/formats/control-event.md. An event is the body of a record of the topic
`rmq_sys_kourou_control` (tag = event type, key = aggregate). Actor, reason, trace ID and time are
in that body only; offset and position are those of the record.

Invariants:  an event contains everything that replaying it needs, and the value it replaced, to
             undo it
             a type or an aggregate's name is never reused for something else
             an event of an unknown type (written by a newer version) is kept byte for byte, and
             so is an event about users that cannot be read, which closes the broker
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar, get_args

import msgspec

from kourou.access.api_token import ApiToken
from kourou.access.model import AccessMode, Door, Policy, SealedSecret, User
from kourou.errors import BadRequest, DecodeError
from kourou.model.filter import FilterPolicy, FilterState
from kourou.model.limits import ACTOR_LENGTH_MAX, REASON_LENGTH_MAX, TRACE_ID_LENGTH_MAX
from kourou.model.message import Property
from kourou.model.quota import Quota
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig

Scalar = bool | int | str
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
QueueOffsets = dict[Count, Count]


class EventBase(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """A JSON object whose `type` is the class's name."""

    @property
    def type(self) -> str:
        """The event's type: its class's name, and the tag of its record."""
        return type(self).__name__


class TopicPut(EventBase, frozen=True):
    """A topic was created (`before` None) or changed."""

    topic: TopicConfig
    before: TopicConfig | None = None

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"topic/{self.topic.name}"


class TopicDeleted(EventBase, frozen=True):
    """A topic was deleted, with the progress of every group in it.

    `next_offsets` has the next offset of each queue. A topic created again continues from there,
    because the old records are still in the log and an offset is never used twice.
    """

    before: TopicConfig
    next_offsets: QueueOffsets = {}

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"topic/{self.before.name}"


class GroupPut(EventBase, frozen=True):
    """A consumer group was created (`before` None) or changed."""

    group: GroupConfig
    before: GroupConfig | None = None

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"group/{self.group.name}"


class GroupDeleted(EventBase, frozen=True):
    """A consumer group was deleted; its progress too, if `remove_offset`."""

    before: GroupConfig
    remove_offset: bool = False

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"group/{self.before.name}"


class SettingChanged(EventBase, frozen=True):
    """A dynamic setting has a new value; None: the value of the configuration file."""

    name: str
    value: Scalar | None
    before: Scalar | None = None

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"setting/{self.name}"


class ProgressRecorded(EventBase, frozen=True):
    """New progress of a group: topic -> queue id -> next offset, of the queues that advanced."""

    group: str
    offsets: dict[str, QueueOffsets]

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"progress/{self.group}"


class OffsetsReset(EventBase, frozen=True):
    """A group's progress in one topic was reset; None as an offset removes the entry."""

    group: str
    topic: str
    offsets: dict[Count, Count | None]
    before: dict[Count, Count | None] = {}

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"progress/{self.group}"


class QueueLocksChanged(EventBase, frozen=True):
    """Queue locks for ordered consumption: topic -> queue id -> client, or None if unlocked.

    Has only the queues whose owner changed; the renewal of a lock is not recorded.
    """

    group: str
    owners: dict[str, dict[Count, str | None]]

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"locks/{self.group}"


class KeyValuePut(EventBase, frozen=True):
    """A key of a name server was set; services without a commit log write it to their store."""

    namespace: str
    key: str
    value: str
    before: str | None = None

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"kv/{self.namespace}"


class KeyValueDeleted(EventBase, frozen=True):
    """A key of a name server was deleted."""

    namespace: str
    key: str
    before: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"kv/{self.namespace}"


class UnreadSpan(msgspec.Struct, frozen=True):
    """Messages [first, end) of one queue that one group has not consumed."""

    group: str
    topic: str
    queue_id: Count
    first: Count
    end: Count


class LogDeleted(EventBase, frozen=True):
    """The log from position `start` to `end` is deleted; `unread` has what groups did not consume.

    `reason`: "expired", "disk" (expired, and the disk is filling), "forced" (not expired) or
    "asked" (an operator requested it).
    """

    start: Count
    end: Count
    reason: str
    unread: tuple[UnreadSpan, ...] = ()

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return "log/retention"


class UnreadExpiring(EventBase, frozen=True):
    """The log below `end` expires within `within_ms`; `unread` has what groups did not consume."""

    end: Count
    within_ms: Count
    unread: tuple[UnreadSpan, ...]

    @property
    def aggregate(self) -> str:
        """The aggregate that it will change."""
        return "log/retention"


class EventLost(EventBase, frozen=True):
    """Replaces an event whose record is unreadable, so that the stream has no gap.

    `about_users`: whether it was an AccessEvent; None if that is not known.
    """

    reason: str
    about_users: bool | None = None

    @property
    def aggregate(self) -> str:
        """Unknown: the event is unreadable."""
        return "lost"


class FilterEventBase(EventBase, frozen=True):
    """Base of all events about the filters of consumer groups: aggregate filter/GROUP/NAME."""


class _FilterEvent(FilterEventBase, frozen=True):
    group: str
    name: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"filter/{self.group}/{self.name}"


class FilterUploaded(_FilterEvent, frozen=True):
    """A version of a filter was uploaded; it does not run yet. `sha256` is that of `source`."""

    version: Count
    source: str
    sha256: str
    author: str = ""
    note: str = ""


class FilterEnabled(_FilterEvent, frozen=True):
    """This version was activated; `before` was active until then, None: no version was."""

    version: Count
    before: Count | None = None


class FilterDisabled(_FilterEvent, frozen=True):
    """The filter was disabled; `before` is the version that was active."""

    before: Count


class FilterPolicySet(_FilterEvent, frozen=True):
    """The failure policy was changed: what happens to messages on which the filter fails."""

    policy: FilterPolicy
    before: FilterPolicy


class FilterQuarantined(_FilterEvent, frozen=True):
    """This version must not run. `server` is the filter server or the caller that reported it."""

    version: Count
    reason: str
    server: str = ""


class FilterReleased(_FilterEvent, frozen=True):
    """The quarantine of this version was lifted; `reason` is why it was in quarantine."""

    version: Count
    reason: str


class FilterMessagesSkipped(_FilterEvent, frozen=True):
    """Messages of a queue were skipped because this version failed on them."""

    version: Count
    topic: str
    queue_id: Count
    offsets: tuple[Count, ...]
    reason: str
    server: str = ""


class FilterDeleted(FilterEventBase, frozen=True):
    """A filter was deleted, with all its versions."""

    before: FilterState

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"filter/{self.before.group}/{self.before.name}"


class FilterRestored(FilterEventBase, frozen=True):
    """A deleted filter was restored, with all its versions."""

    filter: FilterState

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"filter/{self.filter.group}/{self.filter.name}"


FilterEvent = (
    FilterUploaded
    | FilterEnabled
    | FilterDisabled
    | FilterPolicySet
    | FilterQuarantined
    | FilterReleased
    | FilterMessagesSkipped
    | FilterDeleted
    | FilterRestored
)


class BatchEventBase(EventBase, frozen=True):
    """Base of all events about batch transactions of a query."""

    query: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"batches/{self.query}"


class BatchPrepared(BatchEventBase, frozen=True):
    """This broker holds `messages` of the batch and waits for the decision of `coordinator`.

    With 0 messages the event only records the coordinator of the query; `batch` is the batch of the
    request that named it. `user` is who prepared it, "" where users are not decided about.
    """

    batch: Count
    coordinator: str
    messages: Count = 0
    user: str = ""


class BatchDecided(BatchEventBase, frozen=True):
    """The batch is committed: `winners` has the attempt that counts for each partition.

    `counts` has the number of messages of these attempts that each broker holds.
    """

    batch: Count
    winners: dict[Count, str]
    counts: dict[str, Count]


class BatchResolved(BatchEventBase, frozen=True):
    """This broker stored or discarded all its messages of this batch and of earlier ones."""

    batch: Count


class BatchQueryForgotten(BatchEventBase, frozen=True):
    """The query was removed, because it ended or was unused for long."""


BatchEvent = BatchPrepared | BatchDecided | BatchResolved | BatchQueryForgotten


class ReplicationEventBase(EventBase, frozen=True):
    """Base of all events about replication; a broker that never had a follower has none."""


class EpochOpened(ReplicationEventBase, frozen=True):
    """From position `start` on, only `leader` writes the log.

    `start` is the end of the log before this event. The event's own record is at `start`, or after
    the filler that closes the segment. `role` is the leader's brokerRole. An epoch is never reused.
    """

    epoch: Count
    start: Count
    leader: str
    role: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return "replication/epoch"


class InSyncChanged(ReplicationEventBase, frozen=True):
    """The in-sync replicas changed (brokerIds): producers wait for them; empty: for none."""

    members: tuple[Count, ...]
    before: tuple[Count, ...]
    reason: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return "replication/in-sync"


ReplicationEvent = EpochOpened | InSyncChanged


class AccessEventBase(EventBase, frozen=True):
    """Base of all events about users, their policies, and what happens with decisions."""


class UserPut(AccessEventBase, frozen=True):
    """A user was created (`before` None) or changed."""

    user: User
    before: User | None = None

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"user/{self.user.name}"


class UserDeleted(AccessEventBase, frozen=True):
    """A user was deleted, with its credentials and its policies."""

    before: User
    policies: tuple[Policy, ...] = ()

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"user/{self.before.name}"


class UserSecretSet(AccessEventBase, frozen=True):
    """A user has a new secret; the former one is not valid any more. It is stored encrypted."""

    user: str
    secret: SealedSecret

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"user/{self.user}"


class UserPasswordSet(AccessEventBase, frozen=True):
    """A user has a new password, or none (`sealed` None). Its Argon2id hash is stored encrypted."""

    user: str
    sealed: SealedSecret | None = None

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"user/{self.user}"


class ApiTokenCreated(AccessEventBase, frozen=True):
    """A user has one more token. Replies about events leave out its `digest`."""

    token: ApiToken

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"user/{self.token.user}"


class ApiTokenRevoked(AccessEventBase, frozen=True):
    """The token `id` of a user is not valid any more."""

    user: str
    id: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"user/{self.user}"


class PolicyPut(AccessEventBase, frozen=True):
    """A policy was added (`before` None) or changed."""

    policy: Policy
    before: Policy | None = None

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"user/{self.policy.user}"


class PolicyRemoved(AccessEventBase, frozen=True):
    """A policy was removed."""

    before: Policy

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"user/{self.before.user}"


class AccessModeSet(AccessEventBase, frozen=True):
    """Decisions are ignored, observed or enforced from now on.

    `doors` has the modes of the doors that have one of their own.
    """

    mode: AccessMode
    before: AccessMode
    doors: dict[Door, AccessMode] = {}
    doors_before: dict[Door, AccessMode] = {}

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return "access/mode"


class AccessRecovered(AccessEventBase, frozen=True):
    """The owner of the machine opened the broker again; `unreadable` is what had closed it."""

    unreadable: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return "access/recovery"


AccessEvent = (
    UserPut
    | UserDeleted
    | UserSecretSet
    | UserPasswordSet
    | ApiTokenCreated
    | ApiTokenRevoked
    | PolicyPut
    | PolicyRemoved
    | AccessModeSet
    | AccessRecovered
)

ACCESS_TYPES: frozenset[str] = frozenset(kind.__name__ for kind in get_args(AccessEvent))

_ABOUT_USERS = ("user/", "access/")
"""How the aggregates of all events about users begin, also of types to come."""


class QuotaEventBase(EventBase, frozen=True):
    """Base of all events about quotas: aggregate quota/KIND/NAME."""


class QuotaPut(QuotaEventBase, frozen=True):
    """A quota was added (`before` None) or replaced."""

    quota: Quota
    before: Quota | None = None

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"quota/{self.quota.kind}/{self.quota.name}"


class QuotaRemoved(QuotaEventBase, frozen=True):
    """A quota was removed."""

    before: Quota

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"quota/{self.before.kind}/{self.before.name}"


QuotaEvent = QuotaPut | QuotaRemoved


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event that this version does not understand; `body` is its JSON, unchanged.

    Its type is unknown, or it is about users and has a value that is unknown.
    """

    type: str
    aggregate: str
    body: bytes

    @property
    def about_users(self) -> bool:
        """True if it may have changed what users are allowed."""
        return self.type in ACCESS_TYPES or self.aggregate.startswith(_ABOUT_USERS)


KnownEvent = (
    TopicPut
    | TopicDeleted
    | GroupPut
    | GroupDeleted
    | SettingChanged
    | ProgressRecorded
    | OffsetsReset
    | QueueLocksChanged
    | KeyValuePut
    | KeyValueDeleted
    | LogDeleted
    | UnreadExpiring
    | EventLost
    | FilterEvent
    | BatchEvent
    | ReplicationEvent
    | AccessEvent
    | QuotaEvent
)
Event = KnownEvent | UnknownEvent

EVENT_TYPES: frozenset[str] = frozenset(kind.__name__ for kind in get_args(KnownEvent))


@dataclass(frozen=True, slots=True)
class Cause:
    """The actor, the reason, and the trace ID (hexadecimal; empty if there is none).

    `undoes` is the offset of the event that it undoes, or None.
    """

    actor: str
    reason: str = ""
    trace_id: str = ""
    undoes: int | None = None

    def __post_init__(self) -> None:
        for what, text, length_max in (
            ("actor", self.actor, ACTOR_LENGTH_MAX),
            ("reason", self.reason, REASON_LENGTH_MAX),
            ("trace id", self.trace_id, TRACE_ID_LENGTH_MAX),
        ):
            if len(text) > length_max:
                raise BadRequest(
                    f"the {what} is {len(text)} characters long; at most {length_max} are allowed"
                )
            if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
                raise BadRequest(f"the {what} contains a NUL or half of a surrogate pair")


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its offset and position in the stream.

    `offset` is the event's number in the stream, from 0; `position` is the position of its record
    in the commit log, -1 in a stream without one; `at_ms` is wall time and does not decrease within
    a stream. `undoes` is the offset of the event that this one undoes, or None.
    """

    offset: int
    position: int
    at_ms: int
    actor: str
    reason: str
    trace_id: str
    event: Event
    undoes: int | None = None


class _Tag(msgspec.Struct):
    type: str


class _Envelope(msgspec.Struct, omit_defaults=True):
    at_ms: Count
    actor: str
    reason: str
    trace_id: str
    aggregate: str
    event: msgspec.Raw
    undoes: Count | None = None


_ENCODER = msgspec.json.Encoder()
_EVENT_DECODER: msgspec.json.Decoder[KnownEvent] = msgspec.json.Decoder(KnownEvent)
_TAG_DECODER = msgspec.json.Decoder(_Tag)
_ENVELOPE_DECODER = msgspec.json.Decoder(_Envelope)

# What msgspec's `decode` raises for malformed bytes.
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_event(event: Event) -> bytes:
    """The event alone as JSON: `{"type":…, …}`."""
    if isinstance(event, UnknownEvent):
        return event.body
    return _ENCODER.encode(event)


def decode_event(body: bytes | memoryview, aggregate: str) -> Event:
    """The event in `body`; `aggregate` is that of an unknown event. Raises DecodeError."""
    try:
        return _EVENT_DECODER.decode(body)
    except _DECODE_ERRORS as error:
        kind = _decode(_TAG_DECODER, body, "event").type
        unknown = UnknownEvent(kind, aggregate, bytes(body))
        if not _is_text(body) or (kind in EVENT_TYPES and not unknown.about_users):
            raise DecodeError(f"a control event of type {kind} is malformed: {error}") from error
        return unknown


def encode_record_body(event: Event, *, at_ms: int, cause: Cause) -> bytes:
    """The body of the record for this event."""
    return _ENCODER.encode(
        _Envelope(
            at_ms,
            cause.actor,
            cause.reason,
            cause.trace_id,
            event.aggregate,
            msgspec.Raw(encode_event(event)),
            cause.undoes,
        )
    )


def decode_record_body(body: bytes | memoryview, *, offset: int, position: int) -> Recorded:
    """The event of the record with this queue offset and position. Raises DecodeError."""
    envelope = _decode(_ENVELOPE_DECODER, body, "record")
    return Recorded(
        offset,
        position,
        envelope.at_ms,
        envelope.actor,
        envelope.reason,
        envelope.trace_id,
        decode_event(bytes(envelope.event), envelope.aggregate),
        envelope.undoes,
    )


def record_properties(event: Event) -> dict[str, str]:
    """The properties of the record for this event: it is found by type and by aggregate."""
    return {Property.KEYS.value: event.aggregate, Property.TAGS.value: event.type}


def _is_text(body: bytes | memoryview) -> bool:
    try:
        bytes(body).decode()
    except UnicodeDecodeError:
        return False
    return True


_T = TypeVar("_T")


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes | memoryview, what: str) -> _T:
    try:
        return decoder.decode(body)
    except _DECODE_ERRORS as error:
        raise DecodeError(f"the control {what} cannot be read: {error}") from error
