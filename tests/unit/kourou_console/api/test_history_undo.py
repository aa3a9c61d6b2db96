"""What brokers never take back is not offered; the rest is theirs to judge."""

from __future__ import annotations

from typing import get_args

import pytest

from kourou.engine.policy import TopicRules
from kourou.events.control_events import EVENT_TYPES, FilterEvent
from kourou_console.api.history import SKIPPED, UNDONE, effect, refusal
from kourou_console.topic_kinds import _PURPOSES


def test_the_types_are_those_that_brokers_take_back() -> None:
    filters = {kind.__name__ for kind in get_args(FilterEvent)} - {SKIPPED}
    others = {"TopicPut", "TopicDeleted", "GroupPut", "GroupDeleted"}
    assert filters | others | {"SettingChanged", "OffsetsReset"} == UNDONE
    assert UNDONE < EVENT_TYPES
    for kind in EVENT_TYPES - UNDONE:
        assert refusal(kind, "x", created=False)


@pytest.mark.parametrize("topic", [*_PURPOSES, "broker-a", "shop", "shop_REPLY_TOPIC"])
def test_a_broker_owns_every_topic_that_is_refused(topic: str) -> None:
    assert TopicRules(cluster_name="shop", broker_name="broker-a").owns(topic)
    for kind in ("TopicPut", "TopicDeleted"):
        why = refusal(kind, topic, created=True, brokers=["broker-a"], clusters=["shop"])
        assert why is not None
        assert "is a system" in why


def test_what_may_be_taken_back() -> None:
    assert refusal("TopicPut", "orders", created=True) is None
    assert refusal("TopicPut", "%RETRY%billing", created=True) is None
    assert refusal("GroupPut", "billing", created=True) is None
    assert refusal("GroupPut", "TOOLS_CONSUMER", created=False) is None
    assert refusal("SettingChanged", "fileReservedTime", created=False) is None
    assert refusal("GroupPut", "TOOLS_CONSUMER", created=True)


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        ("TopicPut", {"before": None}, "deleted with its messages, only with force"),
        ("TopicPut", {"before": {"name": "orders"}}, "The previous state is restored"),
        ("TopicDeleted", {"before": {"name": "orders"}}, "The previous state is restored"),
        ("GroupPut", {}, "before: it is deleted"),
        ("GroupPut", {"before": {"name": "billing"}}, "The previous state is restored"),
        ("SettingChanged", {"before": None}, "the broker's file"),
        ("SettingChanged", {"before": 4}, "The previous state is restored"),
        ("OffsetsReset", {"before": {"0": 4}}, "before the reset"),
        ("FilterUploaded", {"version": 3}, "Version 3 is deleted"),
        ("FilterEnabled", {"version": 3, "before": None}, "No version is enabled"),
        ("FilterEnabled", {"version": 3, "before": 2}, "Version 2 is enabled again"),
        ("FilterDisabled", {"before": 2}, "Version 2 is enabled again"),
        ("FilterPolicySet", {"before": {}}, "The previous policy"),
        ("FilterQuarantined", {"version": 3}, "The quarantine of version 3 ends"),
        ("FilterReleased", {"version": 3}, "Version 3 is quarantined again"),
        ("FilterDeleted", {"before": {}}, "is restored with all its versions"),
        ("FilterRestored", {}, "deleted again"),
    ],
)
def test_a_preview_says_what_its_kind_of_event_does(
    kind: str, fields: dict[str, object], says: str
) -> None:
    assert kind in UNDONE
    assert says in effect(kind, fields)
