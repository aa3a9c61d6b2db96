"""Consumer groups: what may be made, changed and deleted."""

from __future__ import annotations

import pytest

from kourou.engine.groups import group_table as groups
from kourou.engine.groups.group_table import GroupAggregate
from kourou.errors import BadRequest, Rejected
from kourou.events.control_events import Event, GroupDeleted, GroupPut
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion


def apply(state: GroupAggregate, events: list[Event], at_ms: int = 1) -> GroupAggregate:
    for event in events:
        assert isinstance(event, GroupPut | GroupDeleted)
        groups.evolve(state, event, at_ms)
    return state


def with_group(config: GroupConfig) -> GroupAggregate:
    return apply(GroupAggregate(), [GroupPut(config)])


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


@pytest.mark.parametrize(
    "wanted",
    [
        GroupConfig(""),
        GroupConfig("a b"),
        GroupConfig("g" * 121),
        GroupConfig("g", retry_queue_nums=-1),
        GroupConfig("g", retry_queue_nums=20_000),
        GroupConfig("g", retry_max_times=-1),
        GroupConfig("g", retry_max_times=2**31),
        GroupConfig("g", broker_id=-1),
        GroupConfig("g", which_broker_when_consume_slowly=-1),
    ],
)
def test_what_is_out_of_range_is_refused(wanted: GroupConfig):
    with pytest.raises(BadRequest):
        groups.decide_put(GroupAggregate(), wanted)


def test_names_that_differ_only_in_case_are_refused():
    state = with_group(GroupConfig("Billing"))
    with pytest.raises(Rejected, match="existing group Billing"):
        groups.decide_put(state, GroupConfig("billing"))
    with pytest.raises(Rejected, match="existing group Billing"):
        groups.decide_auto_create(state, "BILLING", enabled=True)


@pytest.mark.parametrize("name", ["TOOLS_CONSUMER", "CID_RMQ_SYS_ANY"])
def test_system_groups_are_not_deleted(name: str):
    with pytest.raises(Rejected, match="is internal and cannot be deleted"):
        groups.decide_delete(GroupAggregate(), name, remove_offset=False)


def test_every_change_makes_a_new_data_version_and_a_copy_stays_behind():
    state = apply(GroupAggregate(), [GroupPut(GroupConfig("g"))], at_ms=5)
    copy = state.copy()
    assert copy == state == groups.groups_of(list(state), DataVersion(5, 1))
    apply(state, [GroupDeleted(GroupConfig("g"))], at_ms=6)
    assert state.version == DataVersion(6, 2)
    assert "g" in copy
    assert "g" not in state
