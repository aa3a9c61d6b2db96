"""Undoes decisions.

State: none. An undo is an ordinary decision with the old value: it passes the same checks, results
in events of its own, and can be undone itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kourou.engine.admin import topic_table as topics
from kourou.engine.admin.topic_table import Unread
from kourou.engine.control import ControlState, decide_delete_group
from kourou.engine.filters import undo as filter_undo
from kourou.engine.groups import group_table as groups
from kourou.engine.groups import progress
from kourou.engine.groups.progress import Commits, Table
from kourou.engine.policy import TopicRules
from kourou.errors import Rejected
from kourou.events.control_events import (
    Event,
    GroupDeleted,
    GroupPut,
    OffsetsReset,
    SettingChanged,
    TopicDeleted,
    TopicPut,
)
from kourou.events.event_base import Scalar
from kourou.events.filter_events import FilterEventBase
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
            return settings.decide_change(state.settings, context.registry, {name: _text(old)})
        case OffsetsReset(group_name, topic, moved, old_offsets):
            now = {queue: context.commits.offset(group_name, topic, queue) for queue in moved}
            if now != moved and not context.forced:
                raise Rejected(
                    f"the progress of group {group_name} in topic {topic} has changed since",
                    hint="use force to restore the offsets from before the reset",
                )
            return progress.decide_reset(context.commits, group_name, topic, old_offsets)
        case FilterEventBase():
            return filter_undo.decide_undo(state.filters, event, forced=context.forced)
        case _:
            raise Rejected(
                f"a {event.type} event cannot be undone",
                hint="only changes of topics, groups, settings, offsets and filters can be undone",
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


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
