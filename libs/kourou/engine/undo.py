"""How is a decision taken back?

Lives here: the command that restores what an event replaced. May not live here: finding that event
(kourou.eventstore keeps the history; the log keeps the recent part).

State: none. To undo is an ordinary decision with the old value: it passes the same checks, becomes
an event of its own, and can be undone again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou.engine import groups, progress, settings, topics
from kourou.engine.control import ControlState, decide_delete_group
from kourou.engine.events import (
    Event,
    GroupDeleted,
    GroupPut,
    OffsetsReset,
    Scalar,
    SettingChanged,
    TopicDeleted,
    TopicPut,
)
from kourou.engine.progress import Commits
from kourou.engine.settings_registry import SettingsRegistry
from kourou.engine.topics import TopicRules, Unread
from kourou.errors import Rejected


@dataclass(frozen=True, slots=True)
class UndoContext:
    """What the ordinary decisions want to know; `forced` and `unread` as in `topics.decide_put`."""

    rules: TopicRules
    registry: SettingsRegistry
    commits: Commits
    forced: bool = False
    unread: Sequence[Unread] = ()


def decide_undo(state: ControlState, event: Event, context: UndoContext) -> list[Event]:
    """The events that restore what `event` replaced.

    Refused (unless forced) when the value has changed since, or when a topic's creation would be
    undone, since its messages would go with it. Raises Rejected.
    """
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
            return groups.decide_put(state.groups, gone)
        case SettingChanged(name, value, old):
            _check_unchanged(event, state.settings.values.get(name) == value, context)
            if old is None:
                return settings.decide_clear(state.settings, context.registry, name)
            return settings.decide_change(state.settings, context.registry, {name: _text(old)})
        case OffsetsReset(group_name, topic, moved, old_offsets):
            now = {queue: context.commits.offset(group_name, topic, queue) for queue in moved}
            _check_unchanged(event, now == moved, context)
            return progress.decide_reset(context.commits, group_name, topic, old_offsets)
        case _:
            raise Rejected(f"a {event.type} cannot be undone")


def _undo_topic(
    state: ControlState, event: TopicPut | TopicDeleted, context: UndoContext
) -> list[Event]:
    if isinstance(event, TopicDeleted):
        _check_unchanged(event, event.before.name not in state.topics, context)
        restored = event.before
    else:
        name = event.topic.name
        _check_unchanged(event, state.topics.get(name) == event.topic, context)
        if event.before is None:
            if not context.forced:
                raise Rejected(
                    f"undoing the creation of the topic {name} would delete its messages",
                    hint="delete the topic if that is what you want",
                )
            return topics.decide_delete(state.topics, context.rules, name)
        restored = event.before
    return topics.decide_put(
        state.topics, context.rules, restored, forced=context.forced, unread=context.unread
    )


def _check_unchanged(event: Event, unchanged: bool, context: UndoContext) -> None:
    if not (unchanged or context.forced):
        raise Rejected(f"{event.aggregate} has changed since", hint="undo the later changes first")


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
