"""Checks that the event store's stream matches the log and is not ahead of it."""

from __future__ import annotations

import logging

from kourou.broker.control_log import read_control_events
from kourou.engine.ports import StoreView
from kourou.events.control_events import EventLost, Recorded
from kourou.eventstore.event_store import EventStore
from kourou.model.names import CONTROL_TOPIC

_log = logging.getLogger("kourou.broker")


def last_of_both(view: StoreView, next_offset: int, below: int) -> Recorded | None:
    """Return the newest event of the log that a stream up to `next_offset` also has, or None."""
    low, high = view.queue_range(CONTROL_TOPIC, 0) or (0, 0)
    last = min(next_offset, high) - 1
    if last < low:
        return None
    logged = read_control_events(view, last, below)[:1]
    if not logged or isinstance(logged[0].event, EventLost):
        return None
    return logged[0]


def is_confirmed(view: StoreView, next_offset: int, below: int) -> bool:
    """Are the control events before `next_offset` all below `below`?

    If so, no truncation of the log can remove one of them.
    """
    low, _ = view.queue_range(CONTROL_TOPIC, 0) or (0, 0)
    return next_offset <= low or bool(read_control_events(view, next_offset - 1, below))


def agree(events: EventStore, next_offset: int, high: int, last: Recorded | None) -> int:
    """Remove events that the log (up to offset `high`) lacks; returns the stream's next offset.

    Raises Corrupt if the newest common event differs.
    """
    if next_offset > 0 == high:
        # Nothing to compare with: a power loss cuts off the log's tail, but does not make it new.
        _log.warning(
            "the log is new, but the event store had the history of another log: %s", aside(events)
        )
        return 0
    if last is not None:
        events.append([last])  # an existing event: this compares and writes nothing
    if next_offset > high:
        # The log was truncated (a power loss under ASYNC_FLUSH): the events that it lacks did not
        # happen.
        _log.warning(
            "the event store is %d control events ahead of the log; these events are removed",
            next_offset - high,
        )
        events.truncate(high)
    return min(next_offset, high)


def aside(events: EventStore) -> str:
    """Set the stream aside; returns a text that says where it is now."""
    name = events.set_aside()
    return f"the old history is kept as {name}" if name else "there was no old history"
