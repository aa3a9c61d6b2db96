"""Looking back: what may be asked of the events of a broker, and how an answer looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kourou.engine import replicas
from kourou.engine.control import ControlState
from kourou.engine.progress import Table, TopicTable
from kourou.events.control_events import Event, GroupDeleted, Recorded, TopicDeleted, encode_event
from kourou.protocol.history_body import ToldEvent, encode_told_events

_ENCODER = msgspec.json.Encoder()


# -- questions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """Events of one aggregate (of all, if empty), the newest first; see GET_HISTORY."""

    aggregate: str
    limit: int
    before: int | None = None
    until_ms: int | None = None
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StateQuestion:
    """The state of one aggregate, or of all, at an instant or after an event; see GET_STATE_AT."""

    aggregate: str
    at_ms: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class EventQuestion:
    """One event, and the progress that went with what it deleted."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeginningQuestion:
    """What came before the log's first position; see engine.log_beginning and GET_LOG_BEGINNING.

    `epochs` are those that start below it.
    """

    cluster: str
    broker_name: str
    segment_size: int
    position: int
    queue_ends: dict[str, dict[int, int]]
    epochs: tuple[tuple[int, int], ...]


Question = HistoryQuestion | StateQuestion | EventQuestion | BeginningQuestion


# -- answers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryFound:
    """A page as a body; `before` goes on behind it, None after the last page."""

    body: bytes
    before: int | None
    lost_before: int
    end: int


@dataclass(frozen=True, slots=True)
class StateFound:
    """A state as a body: that after the events below `end`, the latest of which was at `at_ms`."""

    body: bytes
    end: int
    at_ms: int
    lost_before: int


@dataclass(frozen=True, slots=True)
class EventFound:
    """An event; `dropped` is the progress that it took away: group -> topic -> queue id."""

    recorded: Recorded
    dropped: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BeginningFound:
    """A beginning as bytes, of a log that begins at `position`."""

    position: int
    body: bytes


Found = HistoryFound | StateFound | EventFound | BeginningFound


# -- telling --------------------------------------------------------------------------------------


def told(recorded: Recorded) -> ToldEvent:
    """An event as it stands in a body."""
    return ToldEvent(
        offset=recorded.offset,
        at_ms=recorded.at_ms,
        actor=recorded.actor,
        reason=recorded.reason,
        trace_id=recorded.trace_id,
        aggregate=recorded.event.aggregate,
        event=msgspec.Raw(encode_event(recorded.event)),
        undoes=recorded.undoes,
    )


def tell_events(recorded: Sequence[Recorded]) -> bytes:
    """Events as a body."""
    return encode_told_events([told(each) for each in recorded])


def tell_state(state: ControlState, aggregate: str) -> bytes:
    """The state of one aggregate as a body, null where there is none; or all of it.

    The sources of filters go with a single one only.
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
        case "replication":
            return replicas.taken(state.replicas) if state.replicas.epochs else None
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


def _sorted(topics: TopicTable) -> TopicTable:
    return {topic: dict(sorted(queues.items())) for topic, queues in sorted(topics.items())}


# -- what a deletion took with it -----------------------------------------------------------------


def drops_progress(event: Event) -> bool:
    """Did it delete progress, which it does not hold itself?"""
    match event:
        case TopicDeleted():
            return True
        case GroupDeleted():
            return event.remove_offset
        case _:
            return False


def dropped_progress(before: ControlState, event: Event) -> Table:
    """The progress that this event deleted; `before` is the state before it."""
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
