"""Topics by kind, over brokers that agree or not, and what is missing is said."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from kourou.model.topic import MessageQueue
from kourou.testing.cluster import unique_name


@pytest.mark.feature("F057")
def test_topics_are_filtered_by_kind_and_name(suite: Any) -> None:
    topic = suite.topic()
    console = suite.console
    every = console.get("/v1/topics").json
    names = {one["topic"]: one for one in every["items"]}
    assert names[topic]["kind"] == "normal"
    assert names["SCHEDULE_TOPIC_XXXX"]["purpose"] == "delay"
    assert every["kinds"]["system"] == sum(one["kind"] == "system" for one in every["items"])
    normal = console.get("/v1/topics", query={"kind": "normal"}).json
    assert {one["kind"] for one in normal["items"]} == {"normal"}
    assert normal["kinds"] == every["kinds"]
    both = console.get("/v1/topics", query={"kind": ["normal", "system"], "limit": 1}).json
    assert (len(both["items"]), both["truncated"]) == (1, True)
    found = console.get("/v1/topics", query={"search": topic[-8:].upper()}).json
    assert [one["topic"] for one in found["items"]] == [topic]
    assert console.get("/v1/topics", query={"kind": "no"}).status == 400


@pytest.mark.feature("F057")
def test_one_topic_status_route_config(suite: Any) -> None:
    topic = suite.topic()
    suite.send(topic, 8)
    found = suite.console.get(f"/v1/topics/{topic}").json
    assert found["messages"] == 8
    assert found["clusters"] == ["DefaultCluster"]
    assert found["groups"] == []
    assert found["missing"] == []
    assert found["last_stored_ms"] is not None
    status = suite.console.get(f"/v1/topics/{topic}/status").json
    assert sum(one["messages"] for one in status["items"]) == 8
    assert status["total"] == 4
    route = suite.console.get(f"/v1/topics/{topic}/route").json
    assert [one["broker"] for one in route["queues"]] == ["broker-a", "broker-b"]
    assert {one["write_queues"] for one in route["queues"]} == {2}
    config = suite.console.get(f"/v1/topics/{topic}/config").json
    assert config["clashes"] == []
    assert [one["permission"] for one in config["items"]] == ["rw", "rw"]


def test_brokers_that_differ_are_a_clash(suite: Any) -> None:
    topic = suite.topic()
    body = {"write_queues": 5, "permission": "r", "broker": "broker-b"}
    assert suite.console.put(f"/v1/topics/{topic}", json=body).status == 200
    found = suite.console.get(f"/v1/topics/{topic}").json
    assert found["permission"] is None
    assert found["write_queues"] == 7
    assert "write queues: 2 at broker-a, 5 at broker-b" in found["clashes"]
    assert "read queues: 2 at broker-a, 5 at broker-b" in found["clashes"]
    assert "permission: rw at broker-a, r at broker-b" in found["clashes"]


def test_a_topic_that_is_none_and_a_retry_topic(suite: Any) -> None:
    for path in ("", "/config", "/status", "/route", "/groups"):
        assert suite.console.get(f"/v1/topics/nobody{path}").status == 404
    name = quote(f"%RETRY%{suite.group()}", safe="")
    with suite.cluster.client() as mq:
        topic = suite.topic()
        with mq.subscribe(topic):
            found = suite.console.get(f"/v1/topics/{quote('%RETRY%tests', safe='')}").json
    assert (found["kind"], found["group"]) == ("retry", "tests")
    assert suite.console.get(f"/v1/topics/{name}").status == 404


def test_a_broker_that_does_not_answer_is_named_and_the_rest_shown(half: Any) -> None:
    topic = half.topic()
    found = half.console.get("/v1/topics", query={"search": topic}).json
    assert found["missing"] == [{"what": "broker-b", "why": "it swaps"}]
    assert found["total"] is None
    assert found["items"][0]["brokers"] == ["broker-a"]
    one = half.console.get(f"/v1/topics/{topic}").json
    assert {"what": "broker-b", "why": "it swaps"} in one["missing"]
    assert half.console.get(f"/v1/topics/{topic}/config").json["total"] is None


# -- who consumes a topic, and how its queues would be shared --------------------------------------


@pytest.mark.feature("F057")
def test_groups_of_a_topic_with_lag(suite: Any) -> None:
    topic, group = suite.topic(), unique_name("group")
    with suite.consuming(topic, group):
        (row,) = suite.console.get(f"/v1/topics/{topic}/groups").json["items"]
        assert (row["group"], row["members"]) == (group, 1)
    suite.send(topic, 3)
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


# -- what a consume queue keeps, and whom it would go to -------------------------------------------


def test_units_from_an_offset_on(suite) -> None:
    topic = suite.topic(queues=1)
    with suite.cluster.client() as mq:
        for number in range(3):
            mq.send(topic, f"{number}", tag="a", queue=MessageQueue(topic, "broker-a", 0))
    path = f"/v1/topics/{topic}/queues/broker-a/0/units"
    found = suite.console.get(path, query={"offset": 1, "count": 1}).json
    (unit,) = found["items"]
    assert (unit["offset"], unit["tag_code"], found["truncated"]) == (1, str(ord("a")), True)
    assert unit["size_bytes"] > 0
    assert (found["min_offset"], found["max_offset"], found["total"]) == (0, 3, 3)
    assert suite.console.get(path, query={"count": 1_001}).status == 400
