"""Rebuilds the control state at startup, from these sources:

    the log's control topic    decides, as far back as it reaches
    the event store            the state before that, and the history
    config/*.json              a store without a control topic (written by a RocketMQ broker),
                               and changes that another broker made while it ran on this store
    kourou/filters.json        Python filters, if the events before the start of the log are lost

It also checks that the event store's stream matches the log and is not ahead of it; the projector
repeats that check after each outage of the database.

State: none; it creates the state that the engine then owns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kourou.authorization.access_table import why_closed
from kourou.broker.storage.config_mirror import ConfigTables
from kourou.engine.control import CONTROL, ControlState, decide_import, evolve
from kourou.engine.filters.filter_table import FilterAggregate, filters_of
from kourou.engine.policy import TopicRules
from kourou.engine.ports import StoreView
from kourou.engine.sends import recorder
from kourou.errors import Corrupt, KourouError, MetadataUnavailable
from kourou.events.control_events import Event, EventLost, Recorded, TopicDeleted
from kourou.eventstore.event_store import EventStore
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol import kernel
from kourou.runtime import LogWarning

_log = logging.getLogger("kourou.broker")

_LOST = EventLost("").aggregate
_LOST_EVENTS_MAX = 1_000


@dataclass(slots=True)
class RecoveredControl:
    """The rebuilt state, and the events that must be recorded before serving."""

    control: ControlState
    imported: list[Event] = field(default_factory=list)


class TableSource(Protocol):
    """The configuration files, as kourou.broker.storage.config_mirror reads them."""

    def external(self) -> ConfigTables:
        """Return the tables that another broker has written since this broker's last write."""
        ...

    def everything(self) -> ConfigTables:
        """Return all tables."""
        ...


def recover_control(
    view: StoreView, events: EventStore | None, files: TableSource, rules: TopicRules
) -> RecoveredControl:
    """Rebuild the control state, and detect changes that another broker made.

    Without an event store (it is unreachable) the log and the files must suffice. Raises Corrupt if
    neither the event store nor the files have the events that the log no longer has.
    """
    _log.info("record-kernel-selected: the record kernel is %(kernel)s", {"kernel": kernel.NAME})
    low, high = view.queue_range(CONTROL_TOPIC, 0) or (0, 0)
    try:
        control = _projected(view, events, low, high)
    except MetadataUnavailable as error:
        # It is neither read nor changed now: the projector continues from its position later.
        _log.warning(
            "event-store-skipped: the event store cannot be reached; starting without it: "
            "%(error)s",
            {"error": error},
        )
        events, control = None, None
    if control is None:
        control = ControlState(next_offset=low)
        if low > 0:
            _log.warning(
                "control-events-lost: the control events below offset %(offset)d are lost; "
                "starting from config/*.json",
                {"offset": low},
            )
            tables = files.everything()
            if tables.topics is None:
                raise Corrupt(
                    f"the control events below offset {low} are missing in the log and in the "
                    "event store, and config/topics.json is missing",
                    hint="restore the event store or the config folder from a backup",
                )
            for event in _differences(control, tables, rules):
                evolve(control, Recorded(low - 1, -1, 0, "broker", "files", "", event))
            control.next_offset = low
            control.filters = _filters(tables, high)
            if events is not None:
                _restart_log(events, control)
    writable = events is not None
    for batch in _read(view, control.next_offset, high):
        for recorded in batch:
            evolve(control, recorded)
        if events is not None and writable:
            writable = _project(events, batch)
    if control.access.unreadable:
        _log.error("access-closed: %(reason)s", {"reason": why_closed(control.access)})
    imported = [_with_ends(view, one) for one in _differences(control, files.external(), rules)]
    if imported:
        _log.warning(
            "config-imported: importing %(changes)d changes from config/*.json",
            {"changes": len(imported)},
        )
    return RecoveredControl(control, imported)


def _filters(tables: ConfigTables, high: int) -> FilterAggregate:
    """Return the filters of Kourou's own file; the log's newer events are applied later."""
    if tables.filters is None:
        return FilterAggregate()
    filters = filters_of(tables.filters)
    if filters.next_offset > high:
        # A power loss removed events that the file already had; new events must be applied.
        _log.warning(
            "filters-ahead: kourou/filters.json contains filters of control events that the log "
            "lost"
        )
        filters.next_offset = high
    return filters


def _differences(control: ControlState, tables: ConfigTables, rules: TopicRules) -> list[Event]:
    """Return the changes in the files as events; a table that was not read counts as equal."""
    return decide_import(
        control,
        rules,
        topics=control.topics.table if tables.topics is None else tables.topics,
        groups=control.groups.table if tables.groups is None else tables.groups,
        offsets=control.progress.table if tables.offsets is None else tables.offsets,
    )


def _with_ends(view: StoreView, event: Event) -> Event:
    """Add the next offsets of a topic that another broker deleted.

    Its records are still in this broker's log.
    """
    if not isinstance(event, TopicDeleted):
        return event
    name = event.before.name
    spans = {queue_id: view.queue_range(name, queue_id) for queue_id in view.queue_ids(name)}
    ends = {queue_id: span[1] for queue_id, span in sorted(spans.items()) if span and span[1]}
    return TopicDeleted(event.before, ends)


def _projected(
    view: StoreView, events: EventStore | None, low: int, high: int
) -> ControlState | None:
    """Return the event store's state as far as the log confirms it; None if it is unusable."""
    if events is None:
        return None
    try:
        _reread_lost(view, events, low)
        reaches = events.info().next_offset
        agree(events, reaches, high, last_of_both(view, reaches, view.log_range()[1]))
        state, end = events.load(CONTROL)
    except MetadataUnavailable:
        raise
    except KourouError as error:
        _log.warning(
            "event-store-rebuilt: rebuilding the event store from the log: %(error)s",
            {"error": error},
        )
        _set_aside(events)
        return None
    if end < low:
        return None
    return state


def _reread_lost(view: StoreView, events: EventStore, low: int) -> None:
    """Remove from the event store what follows an event that only an older version could not read.

    The log has the event, and what follows is projected again.
    """
    _, end = view.log_range()
    lost = events.history(_LOST, limit=_LOST_EVENTS_MAX).entries
    for one in reversed(lost):
        read = read_control_events(view, one.offset, end) if one.offset >= low else []
        if read and not isinstance(read[0].event, EventLost):
            _log.warning(
                "control-events-reread: control events from %(offset)d on are read from the log "
                "again",
                {"offset": one.offset},
            )
            events.truncate(one.offset)
            return


def _read(view: StoreView, offset: int, high: int) -> Iterator[list[Recorded]]:
    """Read control events from the log, in batches."""
    _, end = view.log_range()
    while offset < high:
        batch = read_control_events(view, offset, end)
        if not batch:
            return
        yield batch
        offset = batch[-1].offset + 1


def _project(events: EventStore, batch: list[Recorded]) -> bool:
    """Write events to the event store; returns False if that fails.

    In that case the projector repairs the event store later.
    """
    try:
        events.append(batch)
    except Corrupt as error:
        _log.warning(
            "event-store-differs: the event store differs from the log; rebuilding it: %(error)s",
            {"error": error},
        )
        _set_aside(events)
        return False
    except MetadataUnavailable as error:
        _log.warning(
            "event-store-behind: the event store cannot be reached; it catches up later: %(error)s",
            {"error": error},
        )
        return False
    return True


def _set_aside(events: EventStore) -> None:
    try:
        _log.warning(
            "event-store-restarted: the event store starts a new history: %(history)s",
            {"history": aside(events)},
        )
    except MetadataUnavailable as error:
        _log.warning(
            "event-store-unrepaired: the event store cannot be reached; it is repaired later: "
            "%(error)s",
            {"error": error},
        )


def _restart_log(events: EventStore, control: ControlState) -> None:
    """Reset the event store to the current state, because the history before it is lost."""
    try:
        events.set_aside()
        events.begin(CONTROL.snapshot(control))
    except MetadataUnavailable as error:
        _log.warning(
            "event-store-unrepaired: the event store cannot be reached; it is repaired later: "
            "%(error)s",
            {"error": error},
        )


# -- log and event store ---------------------------------------------------------------------------


def read_control_events(view: StoreView, offset: int, below: int) -> list[Recorded]:
    """See kourou.engine.sends.recorder."""
    return recorder.read_control_events(view, offset, below, _log_error)


def _log_error(lost: LogWarning) -> None:
    lost.write(_log, logging.ERROR)


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
            "event-store-unrelated: the log is new, but the event store had the history of another "
            "log: %(history)s",
            {"history": aside(events)},
        )
        return 0
    if last is not None:
        events.append([last])  # an existing event: this compares and writes nothing
    if next_offset > high:
        # The log was truncated (a power loss under ASYNC_FLUSH): the events that it lacks did not
        # happen.
        _log.warning(
            "event-store-ahead: the event store is %(events)d control events ahead of the log; "
            "these events are removed",
            {"events": next_offset - high},
        )
        events.truncate(high)
    return min(next_offset, high)


def aside(events: EventStore) -> str:
    """Set the stream aside; returns a text that says where it is now."""
    name = events.set_aside()
    return f"the old history is kept as {name}" if name else "there was no old history"
