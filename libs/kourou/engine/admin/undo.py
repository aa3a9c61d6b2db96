"""Undoes decisions.

State: none. An undo is an ordinary decision with the old value: it passes the same checks, results
in events of its own, and can be undone itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kourou.authorization import access_table as access
from kourou.engine.admin import quota_table as quotas
from kourou.engine.admin import topic_table as topics
from kourou.engine.admin import undo as filter_undo
from kourou.engine.admin.topic_table import Unread
from kourou.engine.control import ControlState, decide_delete_group
from kourou.engine.filters.filter_table import FilterAggregate, existing
from kourou.engine.groups import group_table as groups
from kourou.engine.groups import progress
from kourou.engine.groups.progress import Commits, Table
from kourou.engine.policy import TopicRules
from kourou.errors import Rejected
from kourou.events.control_events import (
    AccessEventBase,
    Event,
    FilterDeleted,
    FilterDisabled,
    FilterEnabled,
    FilterEvent,
    FilterEventBase,
    FilterMessagesSkipped,
    FilterPolicySet,
    FilterQuarantined,
    FilterReleased,
    FilterRestored,
    FilterUploaded,
    GroupDeleted,
    GroupPut,
    OffsetsReset,
    QuotaPut,
    QuotaRemoved,
    SettingChanged,
    TopicDeleted,
    TopicPut,
)
from kourou.model.filter import FilterState
from kourou.model.limits import FILTER_SOURCES_BYTES_MAX, FILTERS_GROUP_MAX, FILTERS_MAX
from kourou.settings import registry as settings
from kourou.settings.registry import SettingsRegistry


@dataclass(frozen=True, slots=True)
class UndoContext:
    """What the ordinary decisions need; `forced` and `unread` as in `topics.decide_put`.

    `ends` has the current ends of the queues of the event's topic; `dropped` is the progress that
    the event deleted (`history.dropped_progress`).
    """

    rules: TopicRules
    registry: SettingsRegistry
    commits: Commits
    forced: bool = False
    unread: Sequence[Unread] = ()
    ends: Mapping[int, int] = field(default_factory=dict)
    dropped: Table = field(default_factory=dict)


def decide_undo(state: ControlState, event: Event, context: UndoContext) -> list[Event]:
    """Return the events that restore what `event` replaced; at least one.

    Refused (unless forced) if the value has changed since, or if a topic's creation would be
    undone, because that deletes its messages. Raises Rejected.
    """
    events = _restoring(state, event, context)
    if not events:
        raise Rejected(f"{event.aggregate} already has the state before that event")
    return events


def _restoring(state: ControlState, event: Event, context: UndoContext) -> list[Event]:
    match event:
        case TopicPut() | TopicDeleted():
            return _undo_topic(state, event, context)
        case GroupPut(group, before):
            _check_unchanged(event, state.groups.get(group.name) == group, context)
            if before is None:
                return decide_delete_group(state, context.commits, group.name, remove_offset=False)
            return groups.decide_put(state.groups, before)
        case GroupDeleted(gone):
            _check_unchanged(event, gone.name not in state.groups, context)
            return [*groups.decide_put(state.groups, gone), *_progress_again(state, context)]
        case SettingChanged(name, value, old):
            _check_unchanged(event, state.settings.values.get(name) == value, context)
            if old is None:
                return settings.decide_clear(state.settings, context.registry, name)
            return settings.decide_change(
                state.settings, context.registry, {name: settings.text_of(old)}
            )
        case OffsetsReset(group_name, topic, moved, old_offsets):
            now = {queue: context.commits.offset(group_name, topic, queue) for queue in moved}
            if now != moved and not context.forced:
                raise Rejected(
                    f"the progress of group {group_name} in topic {topic} has changed since",
                    hint="use force to restore the offsets from before the reset",
                )
            return progress.decide_reset(context.commits, group_name, topic, old_offsets)
        case AccessEventBase():
            return access.decide_undo(state.access, event)
        case QuotaPut(quota, earlier):
            _check_unchanged(event, state.quotas.table.get(quota.key) == quota, context)
            if earlier is None:
                return quotas.decide_remove(state.quotas, quota.kind, quota.name)
            return quotas.decide_put(state.quotas, earlier)
        case QuotaRemoved(removed):
            _check_unchanged(event, removed.key not in state.quotas.table, context)
            return quotas.decide_put(state.quotas, removed)
        case FilterEventBase():
            return filter_undo.decide_filter_undo(state.filters, event, forced=context.forced)
        case _:
            raise Rejected(
                f"a {event.type} event cannot be undone",
                hint="changes of topics, groups, settings, offsets, filters, users and quotas can "
                "be",
            )


def _undo_topic(
    state: ControlState, event: TopicPut | TopicDeleted, context: UndoContext
) -> list[Event]:
    if isinstance(event, TopicDeleted):
        gone = event.before
        _check_unchanged(event, gone.name not in state.topics, context)
        # Forced, because restoring what it was before is no new danger.
        put = topics.decide_put(state.topics, context.rules, gone, forced=True)
        return [*put, *_progress_again(state, context, created=gone.name)]
    name = event.topic.name
    _check_unchanged(event, state.topics.get(name) == event.topic, context)
    if event.before is None:
        if not context.forced:
            raise Rejected(
                f"undoing the creation of topic {name} would delete its messages",
                hint="to delete the messages, delete the topic",
            )
        return topics.decide_delete(state.topics, context.rules, name, context.ends)
    return topics.decide_put(
        state.topics, context.rules, event.before, forced=context.forced, unread=context.unread
    )


def _progress_again(state: ControlState, context: UndoContext, *, created: str = "") -> list[Event]:
    """Return deleted progress of topics that exist; what a group has now stays."""
    return [
        reset
        for group, topics_of_group in sorted(context.dropped.items())
        for topic, offsets in sorted(topics_of_group.items())
        if topic == created or topic in state.topics
        for reset in progress.decide_reset(
            context.commits,
            group,
            topic,
            {
                queue: offset
                for queue, offset in offsets.items()
                if context.commits.offset(group, topic, queue) is None
            },
        )
    ]


def _check_unchanged(event: Event, unchanged: bool, context: UndoContext) -> None:
    if not (unchanged or context.forced):
        raise Rejected(
            f"{event.aggregate} has changed since",
            hint="undo the later changes first, or use force",
        )


def decide_filter_undo(
    filters: FilterAggregate, event: FilterEvent, *, forced: bool
) -> list[Event]:
    """Return the events that restore what `event` replaced; none if nothing has to change.

    State: none. The deletion of a filter is undone completely, because its event has the whole
    filter. The upload of a version is undone only while it is the filter's first one and has not
    been used.

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


def _restore(filters: FilterAggregate, gone: FilterState) -> list[Event]:
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
