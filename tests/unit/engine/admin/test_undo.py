"""Taking decisions back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.engine.admin import topic_table as topics
from kourou.engine.admin.topic_table import Unread
from kourou.engine.admin.undo import UndoContext, decide_undo
from kourou.engine.control import ControlState, decide_delete_group, evolve
from kourou.engine.groups import group_table as groups
from kourou.engine.groups import progress
from kourou.engine.groups.progress import Commits
from kourou.engine.policy import TopicRules
from kourou.errors import Rejected
from kourou.events.control_events import (
    Event,
    GroupPut,
    ProgressRecorded,
    Recorded,
    TopicPut,
    UnknownEvent,
)
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.settings import registry as settings
from kourou.settings.declaration import Setting
from kourou.settings.registry import SettingsRegistry

RULES = TopicRules(broker_name="broker-a")
REGISTRY = SettingsRegistry(
    [Setting("hours", 72, dynamic=True), Setting("traceOn", True, dynamic=True)]
)
TOPIC = TopicConfig("TopicA", 4, 4)


class Handler:
    """A state with what surrounds it."""

    def __init__(self) -> None:
        self.state = ControlState()
        self.commits = Commits(self.state.progress)
        self.context = UndoContext(RULES, REGISTRY, self.commits)
        self.apply([TopicPut(TOPIC), GroupPut(GroupConfig("g"))])

    def apply(self, events: list[Event]) -> Event:
        for event in events:
            evolve(self.state, Recorded(self.state.next_offset, -1, 1, "t", "", "", event))
        return events[-1]

    def undo(self, event: Event, **changes: object) -> list[Event]:
        return decide_undo(self.state, event, replace(self.context, **changes))


def decisions(handler: Handler) -> dict[str, list[Event]]:
    state, commits = handler.state, handler.commits
    return {
        "topic changed": topics.decide_put(state.topics, RULES, replace(TOPIC, perm=4)),
        "topic grown": topics.decide_put(state.topics, RULES, TopicConfig("TopicA", 8, 8)),
        "topic deleted": topics.decide_delete(state.topics, RULES, "TopicA"),
        "group created": groups.decide_put(state.groups, GroupConfig("h")),
        "group changed": groups.decide_put(state.groups, GroupConfig("g", retry_max_times=1)),
        "group deleted": decide_delete_group(state, commits, "g", remove_offset=False),
        "setting changed": settings.decide_change(state.settings, REGISTRY, {"traceOn": "false"}),
        "offsets reset": progress.decide_reset(commits, "g", "TopicA", {0: 5, 1: 6}),
    }


@pytest.mark.parametrize("what", list(decisions(Handler())))
def test_undoing_restores_the_value_and_can_be_undone(what: str):
    handler = Handler()
    before = handler.state.copy()
    event = handler.apply(decisions(handler)[what])
    after = handler.state.copy()
    assert (before.topics.table, before.groups.table, before.settings.values) != (
        after.topics.table,
        after.groups.table,
        after.settings.values,
    ) or before.progress != after.progress
    undone = handler.apply(handler.undo(event))
    assert values(handler.state) == values(before)
    # What was deleted counts as created again, which only force takes back.
    handler.apply(handler.undo(undone, forced=what == "topic deleted"))
    assert values(handler.state) == values(after)


def values(state: ControlState) -> tuple[object, ...]:
    return state.topics.table, state.groups.table, state.settings.values, state.progress


@pytest.mark.parametrize("what", list(decisions(Handler())))
def test_what_has_changed_since_is_not_undone(what: str):
    handler = Handler()
    event = handler.apply(decisions(handler)[what])
    handler.apply(handler.undo(event))
    with pytest.raises(Rejected, match="has changed since"):
        handler.undo(event)


@pytest.mark.feature("F051")
def test_undoing_a_growth_waits_until_the_new_queues_are_consumed():
    handler = Handler()
    event = handler.apply(
        topics.decide_put(handler.state.topics, RULES, TopicConfig("TopicA", 8, 8))
    )
    with pytest.raises(Rejected, match="queue 6"):
        handler.undo(event, unread=[Unread("g", 6, 1)])
    assert handler.undo(event, unread=[Unread("g", 3, 1)])


@pytest.mark.parametrize(
    "event", [ProgressRecorded("g", {"T": {0: 1}}), UnknownEvent("New", "new", b"{}")]
)
def test_some_events_cannot_be_undone(event: Event):
    with pytest.raises(Rejected, match="cannot be undone"):
        Handler().undo(event)


def test_progress_that_was_deleted_comes_back_where_nothing_replaced_it():
    """Of topics that are there; what a group committed since stays."""
    handler = Handler()
    event = handler.apply(groups.decide_delete(handler.state.groups, "g", remove_offset=True))
    handler.commits.commit("g", "TopicA", 1, 9)
    dropped = {"g": {"TopicA": {0: 5, 1: 6}, "Gone": {0: 1}}}
    for each in handler.undo(event, dropped=dropped):
        handler.apply([each])
    assert "g" in handler.state.groups
    assert handler.commits.queues("g", "TopicA") == {0: 5, 1: 9}
    assert handler.commits.topics("g") == ["TopicA"]


def test_a_topic_comes_back_with_progress_and_as_it_was():
    """Even with more write than read queues, which nobody could create now (F048)."""
    handler = Handler()
    odd = TopicConfig("Odd", 2, 4)
    handler.apply([TopicPut(odd)])
    event = handler.apply(topics.decide_delete(handler.state.topics, RULES, "Odd"))
    for each in handler.undo(event, dropped={"g": {"Odd": {0: 5}, "Gone": {0: 1}}}):
        handler.apply([each])
    assert handler.state.topics.table["Odd"] == odd
    assert handler.commits.topics("g") == ["Odd"]


def test_what_is_already_undone_is_refused_even_by_force():
    handler = Handler()
    event = handler.apply(
        topics.decide_put(handler.state.topics, RULES, TopicConfig("TopicA", 8, 8))
    )
    handler.apply(handler.undo(event))
    with pytest.raises(Rejected, match="already has the state before"):
        handler.undo(event, forced=True)


def test_a_reset_is_not_undone_under_a_group_that_went_on():
    handler = Handler()
    handler.commits.commit("g", "TopicA", 0, 50)
    event = handler.apply(progress.decide_reset(handler.commits, "g", "TopicA", {0: 5}))
    handler.commits.commit("g", "TopicA", 0, 8)
    with pytest.raises(Rejected, match="progress of group g in topic TopicA has changed since"):
        handler.undo(event)
    handler.apply(handler.undo(event, forced=True))
    assert handler.commits.offset("g", "TopicA", 0) == 50
