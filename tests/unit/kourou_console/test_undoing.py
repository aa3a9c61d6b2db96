"""What brokers never take back is not offered; the rest is theirs to judge."""

from __future__ import annotations

from typing import get_args

import pytest

from kourou.engine.events import EVENT_TYPES
from kourou.engine.filter_events import FilterEvent
from kourou.engine.topics import TopicRules
from kourou_console.topic_kinds import _PURPOSES
from kourou_console.undoing import SKIPPED, UNDONE, refusal


def test_the_types_are_those_that_brokers_take_back() -> None:
    filters = {kind.__name__ for kind in get_args(FilterEvent)} - {SKIPPED}
    others = {"TopicPut", "TopicDeleted", "GroupPut", "GroupDeleted"}
    assert filters | others | {"SettingChanged", "OffsetsReset"} == UNDONE
    assert UNDONE < EVENT_TYPES
    for kind in EVENT_TYPES - UNDONE:
        assert refusal(kind, "x", created=False)


@pytest.mark.parametrize("topic", [*_PURPOSES, "broker-a", "shop", "shop_REPLY_TOPIC"])
def test_a_broker_owns_every_topic_that_is_refused(topic: str) -> None:
    assert TopicRules(cluster_name="shop").owns(topic)
    for kind in ("TopicPut", "TopicDeleted"):
        why = refusal(kind, topic, created=True, brokers=["broker-a"], clusters=["shop"])
        assert why is not None
        assert "belongs to the broker" in why


def test_what_may_be_taken_back() -> None:
    assert refusal("TopicPut", "orders", created=True) is None
    assert refusal("TopicPut", "%RETRY%billing", created=True) is None
    assert refusal("GroupPut", "billing", created=True) is None
    assert refusal("GroupPut", "TOOLS_CONSUMER", created=False) is None
    assert refusal("SettingChanged", "fileReservedTime", created=False) is None
    assert refusal("GroupPut", "TOOLS_CONSUMER", created=True)
