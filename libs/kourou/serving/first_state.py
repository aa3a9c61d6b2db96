"""Rebuilds the control state at startup, from these sources:

    the log's control topic    decides, as far back as it reaches
    the event store            the state before that, and the history
    config/*.json              a store without a control topic (written by a RocketMQ broker),
                               and changes that another broker made while it ran on this store
    kourou/filters.json        Python filters, if the events before the start of the log are lost

State: none; it creates the state that the engine then owns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kourou.engine.control import CONTROL, ControlState, decide_import, evolve
from kourou.engine.filters.filter_table import Filters, filters_of
from kourou.engine.policy import TopicRules
from kourou.engine.ports import StoreView
from kourou.errors import Corrupt, KourouError, MetadataUnavailable
from kourou.events.control_events import Event, Recorded, TopicDeleted
from kourou.eventstore.event_store import EventStore
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol import kernel
from kourou.serving.agreement import agree, aside, last_of_both
from kourou.serving.config_mirror import Tables
from kourou.serving.control_log import read_control_events

_log = logging.getLogger("kourou.broker")


@dataclass(slots=True)
class Booted:
    """The rebuilt state, and the events that must be recorded before serving."""

    control: ControlState
    imported: list[Event] = field(default_factory=list)


class TableSource(Protocol):
    """The configuration files, as kourou.serving.config_mirror reads them."""

    def foreign(self) -> Tables:
        """Return the tables that another broker has written since this broker's last write."""
        ...

    def everything(self) -> Tables:
        """Return all tables."""
        ...


def boot_control(
    view: StoreView, events: EventStore | None, files: TableSource, rules: TopicRules
) -> Booted:
    """Rebuild the control state, and detect changes that another broker made.

    Without an event store (it is unreachable) the log and the files must suffice. Raises Corrupt if
    neither the event store nor the files have the events that the log no longer has.
    """
    _log.info("record_kernel kind=%s", kernel.NAME)
    low, high = view.queue_range(CONTROL_TOPIC, 0) or (0, 0)
    try:
        control = _projected(view, events, low, high)
    except MetadataUnavailable as error:
        # It is neither read nor changed now: the projector continues from its position later.
        _log.warning("the event store cannot be reached; starting without it: %s", error)
        events, control = None, None
    if control is None:
        control = ControlState(next_offset=low)
        if low > 0:
            _log.warning(
                "the control events below offset %d are lost; starting from config/*.json", low
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
    imported = [_with_ends(view, one) for one in _differences(control, files.foreign(), rules)]
    if imported:
        _log.warning("importing %d changes from config/*.json", len(imported))
    return Booted(control, imported)


def _filters(tables: Tables, high: int) -> Filters:
    """Return the filters of Kourou's own file; the log's newer events are applied later."""
    if tables.filters is None:
        return Filters()
    filters = filters_of(tables.filters)
    if filters.next_offset > high:
        # A power loss removed events that the file already had; new events must be applied.
        _log.warning("kourou/filters.json contains filters of control events that the log lost")
        filters.next_offset = high
    return filters


def _differences(control: ControlState, tables: Tables, rules: TopicRules) -> list[Event]:
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
        reaches = events.info().next_offset
        agree(events, reaches, high, last_of_both(view, reaches, view.log_range()[1]))
        state, end = events.load(CONTROL)
    except MetadataUnavailable:
        raise
    except KourouError as error:
        _log.warning("rebuilding the event store from the log: %s", error)
        _set_aside(events)
        return None
    if end < low:
        return None
    return state


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
        _log.warning("the event store differs from the log; rebuilding it: %s", error)
        _set_aside(events)
        return False
    except MetadataUnavailable as error:
        _log.warning("the event store cannot be reached; it catches up later: %s", error)
        return False
    return True


def _set_aside(events: EventStore) -> None:
    try:
        _log.warning("the event store starts a new history: %s", aside(events))
    except MetadataUnavailable as error:
        _log.warning("the event store cannot be reached; it is repaired later: %s", error)


def _restart_log(events: EventStore, control: ControlState) -> None:
    """Reset the event store to the current state, because the history before it is lost."""
    try:
        events.set_aside()
        events.begin(CONTROL.snapshot(control))
    except MetadataUnavailable as error:
        _log.warning("the event store cannot be reached; it is repaired later: %s", error)
