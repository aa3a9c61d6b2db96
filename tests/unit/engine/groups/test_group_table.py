"""Consumer groups: what may be made, changed and deleted."""

from __future__ import annotations

import pytest

from kourou.engine.groups import group_table as groups
from kourou.engine.groups.group_table import GroupAggregate
from kourou.errors import Rejected
from kourou.events.control_events import Event, GroupDeleted, GroupPut
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion


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
    assert copy == state == groups.groups_of(list(state), DataVersion(5, 1))
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
