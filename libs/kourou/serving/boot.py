"""What did operators and clients decide before this start?

    the log's control topic    decides, as far back as it reaches
    the event store            what came before that, and the history
    config/*.json              a store that never had a control topic (a RocketMQ broker wrote it),
                               and whatever another broker changed while it ran on this store
    kourou/filters.json        filters in Python, where the events before the log's are lost

State: none; it makes the state that the engine then owns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kourou.engine.control import CONTROL, ControlState, decide_import, evolve
from kourou.engine.filters import Filters, filters_of
from kourou.engine.ports import StoreView
from kourou.engine.topics import TopicRules
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
    """The state to go on with, and what must be recorded before serving."""

    control: ControlState
    imported: list[Event] = field(default_factory=list)


class TableSource(Protocol):
    """The configuration files, as kourou.serving.config_mirror reads them."""

    def foreign(self) -> Tables:
        """What somebody else has written since we last did."""
        ...

    def everything(self) -> Tables:
        """Whatever stands there."""
        ...


def boot_control(
    view: StoreView, events: EventStore | None, files: TableSource, rules: TopicRules
) -> Booted:
    """Rebuild the control state, and find out what somebody else changed meanwhile.

    Without an event store (it cannot be reached) the log and the files must do. Raises Corrupt if
    neither the event store nor the files know what the log no longer has.
    """
    _log.info("record_kernel kind=%s", kernel.NAME)
    low, high = view.queue_range(CONTROL_TOPIC, 0) or (0, 0)
    try:
        control = _projected(view, events, low, high)
    except MetadataUnavailable as error:
        # What it has is neither read nor changed now: the projector goes on from there later.
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
                _begin_anew(events, control)
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
    """The filters of our own file, to which the log adds what it knows better."""
    if tables.filters is None:
        return Filters()
    filters = filters_of(tables.filters)
    if filters.next_offset > high:
        # A power loss took events that the file had already; those to come must count.
        _log.warning("kourou/filters.json contains filters of control events that the log lost")
        filters.next_offset = high
    return filters


def _differences(control: ControlState, tables: Tables, rules: TopicRules) -> list[Event]:
    """What the files say that the state does not; tables that were not read count as equal."""
    return decide_import(
        control,
        rules,
        topics=control.topics.table if tables.topics is None else tables.topics,
        groups=control.groups.table if tables.groups is None else tables.groups,
        offsets=control.progress.table if tables.offsets is None else tables.offsets,
    )


def _with_ends(view: StoreView, event: Event) -> Event:
    """Keep the next offsets of a topic that another broker deleted; its records are in our log."""
    if not isinstance(event, TopicDeleted):
        return event
    name = event.before.name
    spans = {queue_id: view.queue_range(name, queue_id) for queue_id in view.queue_ids(name)}
    ends = {queue_id: span[1] for queue_id, span in sorted(spans.items()) if span and span[1]}
    return TopicDeleted(event.before, ends)


def _projected(
    view: StoreView, events: EventStore | None, low: int, high: int
) -> ControlState | None:
    """The event store's state as far as the log bears it out; None if it is of no use."""
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
    """Control events from the log, in batches."""
    _, end = view.log_range()
    while offset < high:
        batch = read_control_events(view, offset, end)
        if not batch:
            return
        yield batch
        offset = batch[-1].offset + 1


def _project(events: EventStore, batch: list[Recorded]) -> bool:
    """Bring the event store along; False if it does not follow: then the projector mends it."""
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


def _begin_anew(events: EventStore, control: ControlState) -> None:
    """The history is lost: let the event store begin with what is known."""
    try:
        events.set_aside()
        events.begin(CONTROL.snapshot(control))
    except MetadataUnavailable as error:
        _log.warning("the event store cannot be reached; it is repaired later: %s", error)
