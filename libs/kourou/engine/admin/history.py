"""Queries about the events of a broker, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kourou.access.model import ANONYMOUS, SealedSecret
from kourou.authorization.access_table import AccessAggregate
from kourou.authorization.access_uses import UsesFound, UsesQuestion
from kourou.authorization.audit import AuditFound, AuditQuestion
from kourou.engine.control import ControlState
from kourou.engine.groups.progress import Table, TopicTable
from kourou.engine.roles import replicas
from kourou.events.control_events import (
    AccessEventBase,
    ApiTokenCreated,
    Event,
    GroupDeleted,
    Recorded,
    TopicDeleted,
    UnknownEvent,
    UserPasswordSet,
    UserSecretSet,
    encode_event,
)
from kourou.protocol.bodies.broker_bodies import EventView, encode_event_views

_ENCODER = msgspec.json.Encoder()


# -- queries --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """Events of one aggregate (of all, if empty), the newest first; see GET_HISTORY."""

    aggregate: str
    limit: int
    before: int | None = None
    until_ms: int | None = None
    types: frozenset[str] = frozenset()
    hide_users: bool = False


@dataclass(frozen=True, slots=True)
class StateQuestion:
    """The state of one aggregate, or of all, at a time or after an event; see GET_STATE_AT."""

    aggregate: str
    at_ms: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class EventQuestion:
    """One event, and the progress that it deleted."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeginningQuestion:
    """The state before the log's first position; see engine.admin.log_bootstrap, GET_LOG_BEGINNING.

    `epochs` are those that start below that position.
    """

    cluster: str
    broker_name: str
    segment_size: int
    position: int
    queue_ends: dict[str, dict[int, int]]
    epochs: tuple[tuple[int, int], ...]


EventsQuestion = HistoryQuestion | StateQuestion | EventQuestion | BeginningQuestion
"""What the event database answers."""

Question = EventsQuestion | AuditQuestion | UsesQuestion


# -- results --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryFound:
    """A page as a body; `before` is where the next page starts, None after the last page."""

    body: bytes
    before: int | None
    lost_before: int
    end: int


@dataclass(frozen=True, slots=True)
class StateFound:
    """A state as a body, after the events below `end`; the latest of them was at `at_ms`."""

    body: bytes
    end: int
    at_ms: int
    lost_before: int


@dataclass(frozen=True, slots=True)
class EventFound:
    """An event; `dropped` is the progress that it deleted: group -> topic -> queue ID -> offset."""

    recorded: Recorded
    dropped: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BeginningFound:
    """The state before the first position of a log, as bytes; the log begins at `position`."""

    position: int
    body: bytes


Found = HistoryFound | StateFound | EventFound | BeginningFound | AuditFound | UsesFound


# -- encoding -------------------------------------------------------------------------------------


def event_view(recorded: Recorded, *, hide_users: bool = False) -> EventView:
    """Return an event as it is encoded in a body; without what it has of a credential.

    With `hide_users` nothing is left of an event about users but its type.
    """
    event = recorded.event
    type_only = msgspec.Raw(_ENCODER.encode({"type": event.type}))
    unread = isinstance(event, UnknownEvent) and event.about_users
    if hide_users and (unread or isinstance(event, AccessEventBase)):
        return EventView(
            offset=recorded.offset,
            at_ms=recorded.at_ms,
            actor="",
            reason="",
            trace_id="",
            aggregate="user",
            event=type_only,
        )
    if isinstance(event, UserSecretSet):
        event = UserSecretSet(event.user, _bare(event.secret))
    elif isinstance(event, UserPasswordSet):
        event = UserPasswordSet(event.user, event.sealed and _bare(event.sealed))
    elif isinstance(event, ApiTokenCreated):
        event = ApiTokenCreated(msgspec.structs.replace(event.token, digest=""))
    return EventView(
        offset=recorded.offset,
        at_ms=recorded.at_ms,
        actor=recorded.actor,
        reason=recorded.reason,
        trace_id=recorded.trace_id,
        aggregate=recorded.event.aggregate,
        event=type_only if unread else msgspec.Raw(encode_event(event)),
        undoes=recorded.undoes,
    )


def _bare(sealed: SealedSecret) -> SealedSecret:
    return SealedSecret(sealed.key_id, b"", b"")


def events_body(recorded: Sequence[Recorded], *, hide_users: bool = False) -> bytes:
    """Encode events as a body."""
    return encode_event_views([event_view(each, hide_users=hide_users) for each in recorded])


def state_body(state: ControlState, aggregate: str) -> bytes:
    """Encode the state of one aggregate as a body, null if it does not exist; or the whole state.

    The sources of a filter are included only if one filter is requested.
    """
    return _ENCODER.encode(_part(state, aggregate))


def _part(state: ControlState, aggregate: str) -> Any:
    kind, _, name = aggregate.partition("/")
    match kind:
        case "topic":
            return state.topics.get(name)
        case "group":
            return state.groups.get(name)
        case "setting":
            return state.settings.values.get(name)
        case "progress":
            return _sorted(state.progress.table.get(name, {}))
        case "filter":
            group, _, filter_name = name.partition("/")
            return state.filters.get(group, filter_name)
        case "batches":
            return state.batches.table.get(name)
        case "user":
            return _user(state.access, name)
        case "quota":
            return state.quotas.named(name)
        case "replication":
            return replicas.snapshot(state.replicas) if state.replicas.epochs else None
    return {
        "topics": {name: state.topics.table[name] for name in sorted(state.topics.table)},
        "groups": {name: state.groups.table[name] for name in sorted(state.groups.table)},
        "settings": dict(sorted(state.settings.values.items())),
        "progress": {
            group: _sorted(topics) for group, topics in sorted(state.progress.table.items())
        },
        "filters": {
            f"{group}/{filter_name}": state.filters.table[group, filter_name].bare()
            for group, filter_name in sorted(state.filters.table)
        },
    }


def _user(access: AccessAggregate, name: str) -> Any:
    """A user with the policies, without secret and password; of tokens without their SHA-256.

    Of `anonymous` the policies.
    """
    user = access.users.get(name)
    if user is None and name != ANONYMOUS:
        return None
    policies = [access.policies[one] for one in sorted(access.policies)]
    tokens = [access.tokens[one] for one in sorted(access.tokens)]
    return {
        "user": user,
        "has_secret": name in access.secrets,
        "has_password": name in access.passwords,
        "tokens": [msgspec.structs.replace(one, digest="") for one in tokens if one.user == name],
        "policies": [one for one in policies if one.user == name],
    }


def _sorted(topics: TopicTable) -> TopicTable:
    return {topic: dict(sorted(queues.items())) for topic, queues in sorted(topics.items())}


# -- progress that a deletion removes -------------------------------------------------------------


def drops_progress(event: Event) -> bool:
    """Return whether the event deleted progress that it does not contain itself."""
    match event:
        case TopicDeleted():
            return True
        case GroupDeleted():
            return event.remove_offset
        case _:
            return False


def dropped_progress(before: ControlState, event: Event) -> Table:
    """Return the progress that this event deleted; `before` is the state before it."""
    table = before.progress.table
    match event:
        case TopicDeleted():
            name = event.before.name
            return {
                group: {name: dict(topics[name])}
                for group, topics in table.items()
                if name in topics
            }
        case GroupDeleted() if event.remove_offset:
            topics = table.get(event.before.name, {})
            return {event.before.name: {topic: dict(queues) for topic, queues in topics.items()}}
        case _:
            return {}
