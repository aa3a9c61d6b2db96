"""Questions about the past, and how answers look."""

from __future__ import annotations

import json

import pytest

from kourou.access.model import ANONYMOUS, Action, Pattern, Policy, User
from kourou.engine.admin.history import dropped_progress, drops_progress, events_body, state_body
from kourou.engine.control import ControlState, evolve
from kourou.events.control_events import (
    Event,
    FilterEnabled,
    FilterUploaded,
    GroupDeleted,
    GroupPut,
    PolicyPut,
    ProgressRecorded,
    Recorded,
    SettingChanged,
    TopicDeleted,
    TopicPut,
    UnknownEvent,
    UserPut,
)
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.bodies.access_bodies import decode_user_state
from kourou.protocol.bodies.broker_bodies import decode_event_views

TOPIC, GROUP = TopicConfig("orders", 4, 4), GroupConfig("till")


def state(*events: Event) -> ControlState:
    made = ControlState()
    for offset, event in enumerate(events):
        evolve(made, Recorded(offset, -1, 10 + offset, "t", "", "", event))
    return made


FULL = state(
    TopicPut(TOPIC),
    GroupPut(GROUP),
    SettingChanged("traceOn", False),
    ProgressRecorded("till", {"orders": {1: 6, 0: 5}, "bills": {0: 2}}),
    ProgressRecorded("other", {"orders": {0: 1}}),
)


def held(aggregate: str) -> object:
    return json.loads(state_body(FULL, aggregate))


def test_an_event_is_reported_with_who_when_why_and_what_it_takes_back():
    recorded = Recorded(7, 300, 1_000, "ann", "too many", "0af7", TopicPut(TOPIC), 5)
    plain = Recorded(8, 600, 1_001, "bob", "", "", SettingChanged("traceOn", None, True))
    first, second = decode_event_views(events_body([recorded, plain]))
    assert (first.offset, first.at_ms, first.actor, first.reason) == (7, 1_000, "ann", "too many")
    assert (first.trace_id, first.aggregate, first.undoes) == ("0af7", "topic/orders", 5)
    assert first.fields["topic"]["write_queue_nums"] == 4
    assert second.undoes is None
    assert second.fields == {
        "type": "SettingChanged",
        "name": "traceOn",
        "value": None,
        "before": True,
    }


@pytest.mark.parametrize("hide_users", [False, True])
def test_an_event_about_users_that_is_not_understood_shows_its_type_only(hide_users: bool) -> None:
    """It may have a credential, and nobody knows where."""
    event = UnknownEvent("PassphraseSet", "user/till", b'{"type":"PassphraseSet","hash":"x1"}')
    recorded = Recorded(7, 300, 1_000, "ann", "why", "", event)
    [shown] = decode_event_views(events_body([recorded], hide_users=hide_users))
    assert shown.fields == {"type": "PassphraseSet"} or shown.fields == {}
    assert (shown.aggregate, shown.actor) == (("user", "") if hide_users else ("user/till", "ann"))


def test_the_state_of_one_aggregate_is_reported_and_null_where_there_is_none():
    orders, till = held("topic/orders"), held("group/till")
    assert isinstance(orders, dict)
    assert isinstance(till, dict)
    assert (orders["name"], orders["perm"], till["name"]) == ("orders", 6, "till")
    assert held("setting/traceOn") is False
    assert held("progress/till") == {"bills": {"0": 2}, "orders": {"0": 5, "1": 6}}
    assert held("topic/bills") is held("group/x") is held("setting/x") is None
    assert held("progress/x") == {}


def test_everything_is_reported_at_once():
    everything = held("")
    assert isinstance(everything, dict)
    assert set(everything) == {"topics", "groups", "settings", "progress", "filters"}
    assert everything["topics"] == {"orders": held("topic/orders")}
    assert everything["progress"] == {
        "other": {"orders": {"0": 1}},
        "till": held("progress/till"),
    }
    assert json.loads(state_body(ControlState(), "")) == {
        "topics": {},
        "groups": {},
        "settings": {},
        "progress": {},
        "filters": {},
    }


def test_a_filter_is_reported_with_its_source_and_all_of_them_without():
    late = FilterUploaded("till", "late", 1, "def match(m, c): ...", "00", "ann", "first")
    filtered = state(late, FilterEnabled("till", "late", 1))
    told = json.loads(state_body(filtered, "filter/till/late"))
    assert (told["active"], told["policy"]) == (1, "hold")
    assert told["versions"][0]["source"] == "def match(m, c): ..."
    assert json.loads(state_body(filtered, "filter/till/other")) is None
    everything = json.loads(state_body(filtered, ""))["filters"]["till/late"]
    assert everything["versions"][0]["source"] is None
    assert everything["versions"][0]["author"] == "ann"


def test_what_progress_went_with_a_deletion():
    gone = TopicDeleted(TOPIC)
    assert drops_progress(gone)
    assert dropped_progress(FULL, gone) == {
        "till": {"orders": {0: 5, 1: 6}},
        "other": {"orders": {0: 1}},
    }
    assert drops_progress(GroupDeleted(GROUP, remove_offset=True))
    assert dropped_progress(FULL, GroupDeleted(GROUP, remove_offset=True)) == {
        "till": {"orders": {0: 5, 1: 6}, "bills": {0: 2}}
    }
    for kept in (GroupDeleted(GROUP), TopicPut(TOPIC)):
        assert not drops_progress(kept)
        assert dropped_progress(FULL, kept) == {}


def test_the_state_of_a_user_has_the_policies_of_that_user():
    till, other = User(name="till"), User(name="other")
    policies = [
        Policy(id=name, user=name, resource=Pattern.parse("Topic:a*"), actions=(Action.SUB,))
        for name in ("till", "other", ANONYMOUS)
    ]
    held = state(UserPut(till), UserPut(other), *map(PolicyPut, policies))
    assert decode_user_state(state_body(held, "user/till")) == (till, (policies[0],))
    assert decode_user_state(state_body(held, "user/anonymous")) == (None, (policies[2],))
    assert decode_user_state(state_body(held, "user/nobody")) == (None, ())
