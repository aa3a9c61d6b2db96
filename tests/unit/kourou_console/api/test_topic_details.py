"""Who consumes a topic, and how its queues would be shared."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.testing.cluster import unique_name


@pytest.mark.feature("F057")
def test_groups_of_a_topic_with_lag(suite: Any) -> None:
    topic, group = suite.topic(), unique_name("group")
    with suite.cluster.client(group) as mq:
        mq.send(topic, "one")
        with mq.subscribe(topic) as messages:
            assert next(iter(messages)).body == b"one"
            (row,) = suite.console.get(f"/v1/topics/{topic}/groups").json["items"]
            assert (row["group"], row["members"]) == (group, 1)
        for number in range(3):
            mq.send(topic, f"{number}")
    found = suite.console.get(f"/v1/topics/{topic}/groups").json
    (row,) = found["items"]
    assert row["lag_messages"] == 4  # the one in hand was not finished
    assert row["lag_ms"] is not None
    assert row["members"] == 0
    assert found["missing"] == []


def test_counters_of_one_topic_and_of_all(suite: Any) -> None:
    topic = suite.topic()
    (row,) = suite.console.get("/v1/statistics", query={"topic": topic}).json["items"]
    assert (row["topic"], row["group"], row["lag_messages"]) == (topic, None, None)
    every = suite.console.get("/v1/statistics").json
    assert topic in {one["topic"] for one in every["items"]}
    active = suite.console.get("/v1/statistics", query={"active": "true"}).json["items"]
    assert all(one["in_per_s"] or one["out_per_s"] for one in active)


def test_shares_are_even(suite: Any) -> None:
    topic = suite.topic()
    found = suite.console.get(f"/v1/topics/{topic}/allocation", query={"member": ["b", "a"]}).json
    assert [(one["member"], one["broker"]) for one in found["items"]] == [
        ("a", "broker-a"),
        ("a", "broker-a"),
        ("b", "broker-b"),
        ("b", "broker-b"),
    ]
    assert suite.console.get(f"/v1/topics/{topic}/allocation").status == 400
