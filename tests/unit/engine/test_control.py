"""The whole control state: events, its snapshot, decisions over several aggregates."""

from __future__ import annotations

import json

import msgspec
import pytest

from kourou.engine import control
from kourou.engine.control import CONTROL, ControlState, decode_state, encode_state, evolve
from kourou.engine.groups.progress import Commits
from kourou.engine.policy import TopicRules
from kourou.errors import DecodeError, Rejected
from kourou.events.control_events import (
    Event,
    EventLost,
    GroupPut,
    OffsetsReset,
    ProgressRecorded,
    QueueLocksChanged,
    Recorded,
    SettingChanged,
    TopicDeleted,
    TopicPut,
    UnknownEvent,
)
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig

RULES = TopicRules(broker_name="broker-a")


def apply(state: ControlState, events: list[Event], at_ms: int = 100) -> ControlState:
    for event in events:
        recorded = Recorded(state.next_offset, -1, at_ms, "test", "", "", event)
        assert evolve(state, recorded) is state
    return state


def full_state() -> ControlState:
    return apply(
        ControlState(),
        [
            *control.decide_start(ControlState(), RULES),
            TopicPut(TopicConfig("TopicA")),
            GroupPut(GroupConfig("g", retry_queue_nums=2)),
            SettingChanged("fileReservedTime", 24),
            SettingChanged("traceOn", False),
            ProgressRecorded("g", {"TopicA": {0: 3, 11: 4}}),
            QueueLocksChanged("g", {"TopicA": {0: "a", 11: "b"}}),
        ],
    )


def test_events_count_and_time_never_goes_back():
    state = apply(ControlState(), [TopicPut(TopicConfig("A"))], at_ms=50)
    apply(state, [TopicPut(TopicConfig("B"))], at_ms=40)
    assert (state.next_offset, state.at_ms) == (2, 50)
    assert control.time_of_next(state, 45) == 50
    assert control.time_of_next(state, 55) == 55


def test_events_that_this_version_does_not_know_change_nothing_but_are_counted():
    state = full_state()
    before = state.copy()
    apply(state, [UnknownEvent("New", "new", b'{"type":"New"}'), EventLost("gone")])
    assert state.next_offset == before.next_offset + 2
    before.next_offset = state.next_offset
    assert state == before


def test_a_snapshot_without_locks_is_read():
    """Those were written before there were any."""
    written = json.loads(encode_state(full_state()))
    del written["locks"]
    read = decode_state(json.dumps(written).encode())
    assert read.locks.table == {}
    assert read.progress == full_state().progress


def test_a_snapshot_is_the_state_and_stays_behind():
    state = full_state()
    taken = CONTROL.snapshot(state)
    copy = state.copy()
    assert (taken.stream, taken.offset, taken.at_ms) == ("control", state.next_offset, 100)
    apply(state, [TopicDeleted(TopicConfig("TopicA"))])
    assert decode_state(taken.body) == copy
    assert decode_state(taken.body) != state
    assert encode_state(decode_state(taken.body)) == taken.body


def test_equal_states_with_another_past_give_the_same_snapshot():
    one = apply(ControlState(), [TopicPut(TopicConfig(name)) for name in "AB"])
    two = apply(ControlState(), [TopicPut(TopicConfig(name)) for name in "BA"])
    assert one == two
    assert encode_state(one) == encode_state(two)


def test_a_snapshot_does_not_hold_what_is_not_recorded():
    state = full_state()
    Commits(state.progress).commit("g", "TopicA", 0, 99)
    read = decode_state(encode_state(state))
    assert read.progress.offset("g", "TopicA", 0) == 3
    assert read == state


@pytest.mark.parametrize(
    "snapshot", [b"", b"{}", b"[]", b'{"format":1}', b'{"format":"1"}', b"\xff" * 9]
)
def test_what_is_no_snapshot_raises_decode_error(snapshot: bytes):
    with pytest.raises(DecodeError):
        decode_state(snapshot)


def test_a_snapshot_of_a_newer_version_is_refused_by_its_number():
    fields = msgspec.json.decode(encode_state(ControlState()))
    with pytest.raises(DecodeError, match="format 2"):
        decode_state(msgspec.json.encode({**fields, "format": 2}))


# -- decisions over several aggregates ----------------------------------------------------------


def test_deleting_a_group_with_its_progress_even_when_only_progress_is_left():
    state = full_state()
    commits = Commits(state.progress)
    [kept] = control.decide_delete_group(state, commits, "g", remove_offset=False)
    apply(state, [kept])
    assert commits.offset("g", "TopicA", 0) == 3
    made = control.decide_delete_group(state, commits, "g", remove_offset=True)
    assert made == [OffsetsReset("g", "TopicA", {0: None, 11: None}, {0: 3, 11: 4})]
    apply(state, made)
    assert commits.groups() == []
    with pytest.raises(Rejected):
        control.decide_delete_group(state, commits, "TOOLS_CONSUMER", remove_offset=True)


def test_what_another_broker_wrote_is_imported_as_events():
    state = full_state()
    topics = {each.name: each for each in state.topics}
    del topics["TopicA"], topics["rmq_sys_kourou_control"], topics["BenchmarkTest"]
    topics["orders"] = TopicConfig("orders", 40_000, 40_000, 6)
    topics["ORDERS"] = TopicConfig("ORDERS", 1, 9)
    groups = {"h": GroupConfig("h"), "TOOLS_CONSUMER": GroupConfig("TOOLS_CONSUMER", False)}
    offsets = {"g": {"TopicA": {0: 5}}, "h": {"orders": {7: 1}}}
    made = control.decide_import(state, RULES, topics=topics, groups=groups, offsets=offsets)
    apply(state, made)
    assert {"orders", "ORDERS", "rmq_sys_kourou_control", "BenchmarkTest"} <= set(
        state.topics.table
    )
    assert "TopicA" not in state.topics
    assert "g" not in state.groups
    assert state.groups.get("TOOLS_CONSUMER") == GroupConfig("TOOLS_CONSUMER", False)
    assert "CID_ONSAPI_PULL" in state.groups
    assert state.progress.table == offsets
    topics = {each.name: each for each in state.topics}
    groups = {each.name: each for each in state.groups}
    assert control.decide_import(state, RULES, topics=topics, groups=groups, offsets=offsets) == []
