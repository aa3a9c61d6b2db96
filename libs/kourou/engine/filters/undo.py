"""Undoes decisions about filters.

State: none. The deletion of a filter is undone completely, because its event has the whole filter.
The upload of a version is undone only while it is the filter's first one and has not been used.
"""

from __future__ import annotations

from kourou.engine.filters.filter_table import Filters, existing
from kourou.errors import Rejected
from kourou.events.control_events import (
    Event,
    FilterDeleted,
    FilterDisabled,
    FilterEnabled,
    FilterEvent,
    FilterMessagesSkipped,
    FilterPolicySet,
    FilterQuarantined,
    FilterReleased,
    FilterRestored,
    FilterUploaded,
)
from kourou.model.filter import FilterState
from kourou.model.limits import FILTER_SOURCES_BYTES_MAX, FILTERS_GROUP_MAX, FILTERS_MAX


def decide_undo(filters: Filters, event: FilterEvent, *, forced: bool) -> list[Event]:
    """Return the events that restore what `event` replaced; none if nothing has to change.

    Raises Rejected if that is impossible, or, unless forced, if the value has changed since.
    """
    match event:
        case FilterDeleted(gone):
            return _restore(filters, gone)
        case FilterRestored(back):
            now = existing(filters, back.group, back.name)
            _check(event, now.versions == back.versions and now.active == back.active, forced)
            return [FilterDeleted(now)]
        case FilterMessagesSkipped():
            raise Rejected(
                "undo cannot deliver skipped messages",
                hint="reset the group's offset to consume them",
            )
        case _:
            return _undo_change(existing(filters, event.group, event.name), event, forced)


def _undo_change(
    now: FilterState,
    event: FilterUploaded
    | FilterEnabled
    | FilterDisabled
    | FilterPolicySet
    | FilterQuarantined
    | FilterReleased,
    forced: bool,
) -> list[Event]:
    group, name = event.group, event.name
    match event:
        case FilterUploaded():
            return _undo_upload(now, event, forced)
        case FilterEnabled():
            _check(event, now.active == event.version, forced)
            if event.before is not None:
                return _run_again(now, event.before, forced)
            return [] if now.active is None else [FilterDisabled(group, name, now.active)]
        case FilterDisabled():
            _check(event, now.active is None, forced)
            return _run_again(now, event.before, forced)
        case FilterPolicySet():
            _check(event, now.policy == event.policy, forced)
            if now.policy == event.before:
                return []
            return [FilterPolicySet(group, name, event.before, now.policy)]
        case FilterQuarantined():
            why = now.quarantined.get(event.version)
            _check(event, why == event.reason, forced)
            return [] if why is None else [FilterReleased(group, name, event.version, why)]
        case FilterReleased():
            _check(event, event.version not in now.quarantined, forced)
            if now.version(event.version) is None or event.version in now.quarantined:
                return []
            return [FilterQuarantined(group, name, event.version, event.reason, "undo")]


def _undo_upload(now: FilterState, event: FilterUploaded, forced: bool) -> list[Event]:
    """Undo an upload: only that of a filter's first version can be undone, by deleting it."""
    if now.version(event.version) is None:
        return []
    if len(now.versions) > 1 or event.version != now.next_version - 1:
        raise Rejected(
            f"{event.aggregate} has other versions, so its upload alone cannot be undone",
            hint="enable another version, roll it back, or delete the filter",
        )
    _check(event, now.active is None, forced)
    return [FilterDeleted(now)]


def _run_again(now: FilterState, version: int, forced: bool) -> list[Event]:
    if now.version(version) is None:
        raise Rejected(
            f"version {version} of filter {now.name} of group {now.group} is no longer stored"
        )
    if version in now.quarantined and not forced:
        raise Rejected(
            f"version {version} of filter {now.name} of group {now.group} is "
            f"quarantined: {now.quarantined[version]}",
            hint="enable it, if it may run again",
        )
    if now.active == version:
        return []
    return [FilterEnabled(now.group, now.name, version, now.active)]


def _restore(filters: Filters, gone: FilterState) -> list[Event]:
    if filters.get(gone.group, gone.name) is not None:
        raise Rejected(
            f"group {gone.group} has another filter {gone.name}",
            hint="delete that one first",
        )
    size_bytes = sum(one.size_bytes for one in gone.versions)
    if (
        len(filters) >= FILTERS_MAX
        or len(filters.of(gone.group)) >= FILTERS_GROUP_MAX
        or filters.source_bytes + size_bytes > FILTER_SOURCES_BYTES_MAX
    ):
        raise Rejected("the filter cannot be restored: the limit of stored filters is reached")
    return [FilterRestored(gone)]


def _check(event: FilterEvent, unchanged: bool, forced: bool) -> None:
    if not (unchanged or forced):
        raise Rejected(
            f"{event.aggregate} has changed since",
            hint="undo the later changes first, or use force",
        )
