"""Queries about the past, answered from an event store.

State: none. All functions block, and raise what the store raises.
"""

from __future__ import annotations

from kourou.engine.admin.history import (
    BeginningFound,
    BeginningQuestion,
    EventFound,
    EventQuestion,
    EventsQuestion,
    Found,
    HistoryFound,
    HistoryQuestion,
    StateFound,
    StateQuestion,
    dropped_progress,
    drops_progress,
    tell_events,
    tell_state,
)
from kourou.engine.admin.log_bootstrap import LogBeginning, encode_beginning, next_control_offset
from kourou.engine.control import CONTROL, ControlState
from kourou.errors import Code, MetadataUnavailable, Rejected
from kourou.eventstore.event_store import EventStore
from kourou.model.limits import STATE_BYTES_MAX


def answer(store: EventStore, question: EventsQuestion, upto: int) -> Found:
    """The reply to a query. Raises MetadataUnavailable if the store lacks events below `upto`."""
    info = store.info()
    if info.next_offset < upto:
        raise MetadataUnavailable(
            f"the event store has the control events below {info.next_offset}, but "
            f"not yet those below {upto}",
            hint="it is catching up",
        )
    match question:
        case HistoryQuestion():
            return _history(store, question)
        case StateQuestion():
            return _state(store, question, info.lost_before)
        case EventQuestion():
            return _event(store, question.offset, info.lost_before)
        case BeginningQuestion():
            return _beginning(store, question, info.lost_before)


def _history(store: EventStore, question: HistoryQuestion) -> HistoryFound:
    found = store.history(
        question.aggregate,
        limit=question.limit,
        before=question.before,
        until_ms=question.until_ms,
        types=question.types,
    )
    before = found.entries[-1].offset if found.cut else None
    body = tell_events(found.entries, hide_users=question.hide_users)
    return HistoryFound(body, before, found.lost_before, found.end)


def _state(store: EventStore, question: StateQuestion, lost_before: int) -> StateFound:
    after = None if question.offset is None else question.offset + 1
    state, end = store.load(CONTROL, as_of_ms=question.at_ms, end_offset=after)
    body = tell_state(state, question.aggregate)
    if len(body) > STATE_BYTES_MAX:
        raise Rejected(
            f"the state has {len(body)} bytes; one reply can have at most {STATE_BYTES_MAX}",
            hint="request one aggregate, like topic/orders",
        )
    return StateFound(body, end, state.at_ms, lost_before)


def _event(store: EventStore, offset: int, lost_before: int) -> EventFound:
    recorded = store.event(offset)
    if recorded is None:
        raise Rejected(
            f"event {offset} is lost: the history begins at {lost_before}",
            code=Code.QUERY_NOT_FOUND,
        )
    if not drops_progress(recorded.event):
        return EventFound(recorded)
    before, _ = store.load(CONTROL, end_offset=offset)
    return EventFound(recorded, dropped_progress(before, recorded.event))


def _beginning(store: EventStore, question: BeginningQuestion, lost_before: int) -> BeginningFound:
    offset = next_control_offset(question.queue_ends)
    if 0 < offset < lost_before:
        raise Rejected(
            f"the log has control events from {offset} on, but the event store has no "
            f"state before event {lost_before}, so the state at the start of the log "
            "is unknown",
            hint=f"use another replica, or retry when control event {lost_before} has expired",
            code=Code.QUERY_NOT_FOUND,
        )
    # Before the first event there is nothing to query.
    control = store.load(CONTROL, end_offset=offset)[0] if offset else ControlState()
    # A filler that closes a segment may start an epoch whose record follows it.
    control.replicas.epochs = list(question.epochs)
    beginning = LogBeginning(
        question.cluster,
        question.broker_name,
        question.segment_size,
        question.position,
        question.queue_ends,
        control,
    )
    return BeginningFound(question.position, encode_beginning(beginning))
