"""The filters of consumer groups: their versions, which one is active, which are quarantined.

State: projection of the events of kourou.events.control_events; owned and changed in place by
`evolve`. It survives the loss of its events, because `<root>/kourou/filters.json` mirrors it.

Invariants:
- a version number of a group's filter is never reused, not even after its deletion
- at most one version is active, and its source is kept
- `version` grows by one with every event that changes how filters run
- an event that the state has already (because it was read from the mirror) changes nothing
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec

from kourou.errors import BadRequest, Code, Rejected
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
from kourou.model.filter import FilterKey, FilterPolicy, FilterState, FilterVersion
from kourou.model.limits import (
    FILTER_NAMES_REMEMBERED_MAX,
    FILTER_REASON_LENGTH_MAX,
    FILTER_SKIP_OFFSETS_MAX,
    FILTER_SOURCES_BYTES_MAX,
    FILTER_VERSIONS_MAX,
    FILTERS_GROUP_MAX,
    FILTERS_MAX,
)


@dataclass(slots=True)
class FilterAggregate:
    """The table. Events below `next_offset` are in it; `source_bytes` is derived.

    `retired` has the next version of filters that were deleted, the oldest deletion first.
    """

    table: dict[FilterKey, FilterState] = field(default_factory=dict)
    version: int = 0
    next_offset: int = 0
    retired: dict[FilterKey, int] = field(default_factory=dict)
    source_bytes: int = field(default=0, compare=False)

    def get(self, group: str, name: str) -> FilterState | None:
        """Return one filter, or None."""
        return self.table.get((group, name))

    def of(self, group: str) -> list[FilterState]:
        """Return the filters of a group, by name."""
        return [self.table[key] for key in sorted(self.table) if key[0] == group]

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[FilterState]:
        return iter(self.table.values())

    def copy(self) -> FilterAggregate:
        """Return an independent copy; the filters themselves never change. O(filters)."""
        return FilterAggregate(
            dict(self.table),
            self.version,
            self.next_offset,
            dict(self.retired),
            self.source_bytes,
        )


# -- as bytes -------------------------------------------------------------------------------------


class FiltersSnapshot(msgspec.Struct, frozen=True):
    """The whole state, as snapshots and the mirror have it; equal states are equal bytes."""

    filters: tuple[FilterState, ...] = ()
    version: int = 0
    next_offset: int = 0
    retired: tuple[tuple[str, str, int], ...] = ()


def snapshot(filters: FilterAggregate) -> FiltersSnapshot:
    """Return the state as it is now; later changes do not affect it. O(filters)."""
    return FiltersSnapshot(
        tuple(filters.table[key] for key in sorted(filters.table)),
        filters.version,
        filters.next_offset,
        tuple((group, name, number) for (group, name), number in filters.retired.items()),
    )


def filters_of(read: FiltersSnapshot) -> FilterAggregate:
    """Return the state from a result of `snapshot`."""
    filters = FilterAggregate(version=read.version, next_offset=read.next_offset)
    for one in read.filters:
        _place(filters, one)
    filters.retired = {(group, name): number for group, name, number in read.retired}
    return filters


# -- evolve ---------------------------------------------------------------------------------------


def evolve(filters: FilterAggregate, event: FilterEvent, offset: int, at_ms: int) -> None:
    """Apply the event at this offset of its stream, in place."""
    if offset < filters.next_offset:
        return
    filters.next_offset = offset + 1
    if isinstance(event, FilterMessagesSkipped):
        before = filters.get(event.group, event.name)
        if before is not None:
            _place(filters, replace(before, skipped=before.skipped + len(event.offsets)))
        return
    filters.version += 1
    match event:
        case FilterUploaded():
            _upload(filters, event, at_ms)
        case FilterDeleted(gone):
            _delete(filters, gone.key)
        case FilterRestored(back):
            _restore(filters, back)
        case (
            FilterEnabled()
            | FilterDisabled()
            | FilterPolicySet()
            | FilterQuarantined()
            | FilterReleased()
        ):
            before = filters.get(event.group, event.name)
            if before is not None:
                _place(filters, _changed(before, event, at_ms))


def _upload(filters: FilterAggregate, event: FilterUploaded, at_ms: int) -> None:
    key = (event.group, event.name)
    before = filters.table.get(key) or FilterState(event.group, event.name)
    version = FilterVersion(
        event.version,
        event.sha256,
        event.author,
        event.note,
        at_ms,
        len(event.source.encode()),
        event.source,
    )
    versions = _kept(replace(before, versions=(*before.versions, version)))
    numbers = {one.version for one in versions}
    filters.retired.pop(key, None)
    _place(
        filters,
        replace(
            before,
            versions=versions,
            quarantined={one: why for one, why in before.quarantined.items() if one in numbers},
            next_version=max(before.next_version, event.version + 1),
        ),
    )


def _kept(one: FilterState) -> tuple[FilterVersion, ...]:
    """Drop the oldest versions beyond the limit, but not the active or the previous one."""
    versions = list(one.versions)
    for old in one.versions[:-1]:
        if len(versions) <= FILTER_VERSIONS_MAX:
            break
        if old.version not in (one.active, one.before_active):
            versions.remove(old)
    return tuple(versions)


def _changed(
    before: FilterState,
    event: FilterEnabled | FilterDisabled | FilterPolicySet | FilterQuarantined | FilterReleased,
    at_ms: int,
) -> FilterState:
    match event:
        case FilterEnabled():
            return replace(
                before,
                active=event.version,
                before_active=before.active or _ran_before(before, event.version),
                versions=tuple(
                    replace(one, enabled_ms=at_ms) if one.version == event.version else one
                    for one in before.versions
                ),
            )
        case FilterDisabled():
            return replace(before, active=None, before_active=event.before)
        case FilterPolicySet():
            return replace(before, policy=event.policy)
        case FilterQuarantined():
            why = {**before.quarantined, event.version: event.reason}
            return replace(before, quarantined=dict(sorted(why.items())))
        case FilterReleased():
            left = {one: why for one, why in before.quarantined.items() if one != event.version}
            return replace(before, quarantined=left)


def _ran_before(before: FilterState, version: int) -> int | None:
    """Return the other version that was enabled last; None if none ever was."""
    ran = [
        (one.enabled_ms, one.version)
        for one in before.versions
        if one.enabled_ms is not None and one.version != version
    ]
    return max(ran)[1] if ran else None


def _delete(filters: FilterAggregate, key: FilterKey) -> None:
    gone = filters.table.pop(key, None)
    if gone is None:
        return
    filters.source_bytes -= _bytes_of(gone)
    filters.retired.pop(key, None)
    filters.retired[key] = gone.next_version
    if len(filters.retired) > FILTER_NAMES_REMEMBERED_MAX:
        del filters.retired[next(iter(filters.retired))]


def _restore(filters: FilterAggregate, back: FilterState) -> None:
    number = max(back.next_version, filters.retired.pop(back.key, 1))
    _place(filters, replace(back, next_version=number))


def _place(filters: FilterAggregate, one: FilterState) -> None:
    before = filters.table.get(one.key)
    if before is None or before.versions is not one.versions:
        filters.source_bytes += _bytes_of(one) - (0 if before is None else _bytes_of(before))
    filters.table[one.key] = one


def _bytes_of(one: FilterState) -> int:
    return sum(version.size_bytes for version in one.versions)


# -- decide ---------------------------------------------------------------------------------------


def existing(filters: FilterAggregate, group: str, name: str) -> FilterState:
    """Return a filter; raises Rejected (22) if it does not exist."""
    found = filters.get(group, name)
    if found is None:
        raise Rejected(f"group {group} has no filter {name}", code=Code.QUERY_NOT_FOUND)
    return found


def version_of_source(filters: FilterAggregate, group: str, name: str, sha256: str) -> int | None:
    """Return the version that has this source, or None."""
    known = filters.get(group, name)
    for one in () if known is None else reversed(known.versions):
        if one.sha256 == sha256:
            return one.version
    return None


def next_version(filters: FilterAggregate, group: str, name: str) -> int:
    """Return the version number that the next source of this filter gets."""
    known = filters.get(group, name)
    return filters.retired.get((group, name), 1) if known is None else known.next_version


def decide_upload(
    filters: FilterAggregate,
    group: str,
    name: str,
    source: str,
    sha256: str,
    *,
    author: str = "",
    note: str = "",
    enable: bool,
) -> list[Event]:
    """Add a version, unless the filter has this source, and activate it if requested.

    `enable` activates a version only if it never ran: a consumer that starts with an old source
    does not revert what an operator has decided since, and does not lift a quarantine. Raises
    Rejected.
    """
    before = filters.get(group, name)
    number = version_of_source(filters, group, name, sha256)
    if before is not None and number is not None:
        known = before.version(number)
        fresh = known is not None and known.enabled_ms is None
        if not (enable and fresh) or number in before.quarantined:
            return []
        return [FilterEnabled(group, name, number, before.active)]
    _check_room(filters, before, group, source)
    number = next_version(filters, group, name)
    uploaded = FilterUploaded(group, name, number, source, sha256, author, note)
    if not enable:
        return [uploaded]
    active = None if before is None else before.active
    return [uploaded, FilterEnabled(group, name, number, active)]


def _check_room(
    filters: FilterAggregate, before: FilterState | None, group: str, source: str
) -> None:
    if before is None:
        if len(filters) >= FILTERS_MAX:
            raise Rejected(f"this broker stores {FILTERS_MAX} filters already, the maximum")
        if len(filters.of(group)) >= FILTERS_GROUP_MAX:
            raise Rejected(f"group {group} has {FILTERS_GROUP_MAX} filters already, the maximum")
    if filters.source_bytes + len(source.encode()) > FILTER_SOURCES_BYTES_MAX:
        raise Rejected(
            f"the sources of all filters of this broker have {filters.source_bytes} "
            f"bytes; at most {FILTER_SOURCES_BYTES_MAX} are allowed",
            hint="delete unused filters",
        )


def decide_enable(
    filters: FilterAggregate, group: str, name: str, version: int | None = None
) -> list[Event]:
    """Activate a version, the newest if None, and lift its quarantine. Raises Rejected."""
    one = existing(filters, group, name)
    number = one.newest if version is None else version
    if number is None or one.version(number) is None:
        raise Rejected(
            f"filter {name} of group {group} has no version {number}",
            hint=f"it has {_numbers(one)}",
            code=Code.QUERY_NOT_FOUND,
        )
    events: list[Event] = []
    if number in one.quarantined:
        events.append(FilterReleased(group, name, number, one.quarantined[number]))
    if one.active != number:
        events.append(FilterEnabled(group, name, number, one.active))
    return events


def decide_rollback(filters: FilterAggregate, group: str, name: str) -> list[Event]:
    """Activate the version that was active before. Raises Rejected."""
    one = existing(filters, group, name)
    number = one.before_active
    if number is None or one.version(number) is None:
        raise Rejected(
            f"filter {name} of group {group} has no earlier version to roll back to",
            hint=f"enable one of {_numbers(one)}, or disable the filter",
        )
    if number in one.quarantined:
        raise Rejected(
            f"version {number} of filter {name} of group {group} is quarantined: "
            f"{one.quarantined[number]}",
            hint=f"enable version {number}, if it may run again, or another version",
        )
    return [FilterEnabled(group, name, number, one.active)]


def decide_disable(filters: FilterAggregate, group: str, name: str) -> list[Event]:
    """Deactivate the filter; pulls that use it wait. Raises Rejected."""
    one = existing(filters, group, name)
    return [] if one.active is None else [FilterDisabled(group, name, one.active)]


def decide_policy(
    filters: FilterAggregate, group: str, name: str, policy: str | None
) -> list[Event]:
    """Set the failure policy. Raises Rejected."""
    one = existing(filters, group, name)
    if policy is None or policy not in FilterPolicy._value2member_map_:
        raise BadRequest(
            f"{policy!r} is not a filter policy", hint=f"one of {', '.join(FilterPolicy)}"
        )
    wanted = FilterPolicy(policy)
    return [] if wanted == one.policy else [FilterPolicySet(group, name, wanted, one.policy)]


def decide_quarantine(
    filters: FilterAggregate,
    group: str,
    name: str,
    version: int | None,
    reason: str,
    server: str = "",
) -> list[Event]:
    """Quarantine a version, the active one if None, for a reason.

    The request may be late: if the version is quarantined already or no longer stored, nothing
    changes. Raises Rejected.
    """
    one = existing(filters, group, name)
    number = one.active if version is None else version
    if number is None:
        raise BadRequest(f"filter {name} of group {group} has no active version: give a version")
    if one.version(number) is None or number in one.quarantined:
        return []
    why = check_reason(reason) or "by request"
    return [FilterQuarantined(group, name, number, why, server)]


def decide_delete(filters: FilterAggregate, group: str, name: str) -> list[Event]:
    """Delete a filter with all its versions; pulls that use it wait. Raises Rejected."""
    return [FilterDeleted(existing(filters, group, name))]


def decide_delete_of_group(filters: FilterAggregate, group: str) -> list[Event]:
    """Delete the filters of a deleted group."""
    return [FilterDeleted(one) for one in filters.of(group)]


def decide_skip(filters: FilterAggregate, skip: FilterMessagesSkipped) -> list[Event]:
    """Let a filter server skip messages. Raises Rejected if it must not.

    The filter server may not know of a change yet. After an error it must wait instead of skipping.
    """
    one = existing(filters, skip.group, skip.name)
    if not 0 < len(skip.offsets) <= FILTER_SKIP_OFFSETS_MAX or min(skip.offsets) < 0:
        raise BadRequest(
            f"the number of skipped offsets must be between 1 and {FILTER_SKIP_OFFSETS_MAX}"
        )
    if one.policy is not FilterPolicy.SKIP:
        raise Rejected(
            f"the policy of filter {skip.name} of group {skip.group} is {one.policy}, "
            "so messages must not be skipped"
        )
    if one.active != skip.version or skip.version in one.quarantined:
        raise Rejected(
            f"version {skip.version} of filter {skip.name} of group {skip.group} is "
            "no longer active"
        )
    return [skip]


def check_reason(reason: str) -> str:
    """Return a reason as one line, truncated to the maximum length."""
    line = " ".join(reason.split())
    if not line.isprintable():
        line = "".join(char if char.isprintable() else "?" for char in line)
    return line[:FILTER_REASON_LENGTH_MAX]


def _numbers(one: FilterState) -> str:
    return ", ".join(str(version.version) for version in one.versions)
