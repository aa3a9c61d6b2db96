"""Consumer groups: what may be made, changed and deleted."""

from __future__ import annotations

import pytest

from kourou.engine.groups import group_table as groups
from kourou.engine.groups.group_table import GroupAggregate
from kourou.errors import Rejected
from kourou.events.control_events import Event, GroupDeleted, GroupPut
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.statistics_bodies import decode_correction_offsets, decode_offset_table
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.pulls import InvokeBrokerToResetOffset, QueryCorrectionOffset
from kourou.protocol.wire.lenient_json import loads


def apply(state: GroupAggregate, events: list[Event], at_ms: int = 1) -> GroupAggregate:
    for event in events:
        assert isinstance(event, GroupPut | GroupDeleted)
        groups.evolve(state, event, at_ms)
    return state


def test_a_broker_makes_the_groups_of_4_9_8_at_start():
    state = apply(GroupAggregate(), groups.decide_start(GroupAggregate()))
    assert sorted(each.name for each in state) == [
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "TOOLS_CONSUMER",
    ]
    assert all(each.consume_broadcast_enable for each in state)
    assert groups.decide_start(state) == []


def test_every_change_makes_a_new_data_version_and_a_copy_stays_behind():
    state = apply(GroupAggregate(), [GroupPut(GroupConfig("g"))], at_ms=5)
    copy = state.copy()
    assert copy == state == groups.groups_of(list(state), DataVersion(5, 1), {})
    apply(state, [GroupDeleted(GroupConfig("g"))], at_ms=6)
    assert state.version == DataVersion(6, 2)
    assert "g" in copy
    assert "g" not in state


def test_beyond_the_maximum_no_group_is_created(monkeypatch: pytest.MonkeyPatch):
    state = apply(GroupAggregate(), [GroupPut(GroupConfig("g"))])
    monkeypatch.setattr("kourou.engine.groups.group_table.GROUPS_MAX", 1)
    with pytest.raises(Rejected, match="has 1 groups, the maximum"):
        groups.decide_put(state, GroupConfig("h"))
    with pytest.raises(Rejected, match="the maximum"):
        groups.decide_auto_create(state, "h", enabled=True)
    assert groups.decide_put(state, GroupConfig("g", retry_max_times=3)), "it exists"
    assert groups.decide_auto_create(state, "g", enabled=True) == []
    apply(state, [GroupDeleted(GroupConfig("g"))])
    assert groups.decide_put(state, GroupConfig("h"))


# -- group handler ---------------------------------------------------------------------------------


def test_each_member_gets_offsets_in_the_form_of_its_own_language(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    for peer, client in ((5, "c1"), (6, "c2")):
        body = encode_heartbeat(HeartbeatBody(client, consumers=(ConsumerData("g"),)))
        engine.ask(HeartBeat(), body, peer=peer)
    members = {one.client_id: one for one in engine.core.parts.membership.consumers("g")}
    members["c2"].language = "CPP"
    engine.notices.clear()
    engine.ask(InvokeBrokerToResetOffset(topic="orders", group="g", timestamp=0, is_force=True))
    bodies = {note.peer.id: b"".join(note.body) for note in engine.notices}
    assert isinstance(loads(bodies[5])["offsetTable"], dict)
    assert isinstance(loads(bodies[6])["offsetTable"], list)
    assert decode_offset_table(bodies[5]) == decode_offset_table(bodies[6])


def test_progress_below_what_is_kept_does_not_count(engine, draft, records) -> None:
    engine.ask(*records([draft() for _ in range(10)]))
    for group, offset in (("g", 2), ("h", 7)):
        engine.core.parts.commits.commit(group, "orders", 0, offset)
    engine.store.firsts["orders", 0] = 5
    request = QueryCorrectionOffset(topic="orders", compare_group="none")
    assert decode_correction_offsets(b"".join(engine.ask(request).body)) == {0: 7}
