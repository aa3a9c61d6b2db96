"""A preview changes nothing; a change says what it changed; the reason is in the history."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.testing.cluster import unique_name

PREVIEW = {"preview": "true"}


@pytest.mark.feature("F057")
def test_create_change_and_look_back(suite: Any) -> None:
    console, topic = suite.console, unique_name("topic")
    wanted = {"write_queues": 3, "reason": "a new till"}
    result = console.put(f"/v1/topics/{topic}", query=PREVIEW, json=wanted).json
    assert (result["created"], result["preview"]) == (True, True)
    assert console.get(f"/v1/topics/{topic}").status == 404
    done = console.put(f"/v1/topics/{topic}", json=wanted).json
    assert [one["after"]["read_queues"] for one in done["items"]] == [3, 3]
    changed = console.put(f"/v1/topics/{topic}", json={"order": True, "read_queues": 4}).json
    assert changed["created"] is False
    assert changed["items"][0]["changes"] == [
        {"name": "read_queues", "before": 3, "after": 4},
        {"name": "order", "before": False, "after": True},
    ]
    assert changed["items"][0]["after"]["write_queues"] == 3  # it was not named, so it stays
    order = console.get(f"/v1/topics/{topic}/order").json["order"]
    assert order == "broker-a:3;broker-b:3"
    same = console.put(f"/v1/topics/{topic}", json={"read_queues": 4}).json
    assert same["says"] == ["No changes."]
    past = suite.history("topic", topic)
    assert {one["reason"] for one in past} == {"a new till", "UpdateAndCreateTopic"}
    assert len(past) == 4  # the last one changed nothing, and no broker was changed


def test_fewer_queues_than_there_is_something_in_is_warned_of_and_refused(suite: Any) -> None:
    topic = suite.topic()
    suite.send(topic, 8)
    result = suite.console.put(
        f"/v1/topics/{topic}", query=PREVIEW, json={"read_queues": 1, "write_queues": 1}
    ).json
    assert any("no longer read" in one for one in result["says"])


@pytest.mark.feature("F362")
def test_permission_and_nothing_else(suite: Any) -> None:
    topic = suite.topic()
    body = {"permission": "r", "broker": "broker-a"}
    result = suite.console.put(f"/v1/topics/{topic}/permission", query=PREVIEW, json=body).json
    assert result["says"] == ["broker-a: permission rw -> r."]
    assert suite.console.get(f"/v1/topics/{topic}").json["permission"] == "rw"
    suite.console.put(f"/v1/topics/{topic}/permission", json=body)
    configs = suite.console.get(f"/v1/topics/{topic}/config").json["items"]
    assert [one["permission"] for one in configs] == ["r", "rw"]
    assert suite.console.put("/v1/topics/nobody/permission", json=body).status == 404


@pytest.mark.feature("F057")
def test_a_deletion_says_what_is_lost_and_by_whom(suite: Any) -> None:
    console, topic, group = suite.console, suite.topic(), unique_name("group")
    suite.send(topic, 5)
    with suite.consuming(topic, group):
        pass
    result = console.delete(f"/v1/topics/{topic}", query=PREVIEW).json
    assert result["messages"] == 6
    assert result["groups"][0]["group"] == group
    assert any("cannot be undone" in one for one in result["says"])
    assert console.get(f"/v1/topics/{topic}").status == 200
    done = console.delete(f"/v1/topics/{topic}", query={"reason": "over"}).json
    assert done["preview"] is False
    assert console.get(f"/v1/topics/{topic}").status == 404
    assert console.delete(f"/v1/topics/{topic}").status == 404
    [newest] = suite.history("topic", topic, count=1)
    assert (newest["type"], newest["reason"]) == ("TopicDeleted", "over")


def test_order_settings(suite: Any) -> None:
    console, topic = suite.console, suite.topic()
    body = {"queues": {"broker-a": 2, "broker-b": 1}}
    assert console.put(f"/v1/topics/{topic}/order", query=PREVIEW, json=body).status == 200
    assert console.get(f"/v1/topics/{topic}/order").json["order"] is None
    console.put(f"/v1/topics/{topic}/order", json=body)
    assert console.get(f"/v1/topics/{topic}/order").json["order"] == "broker-a:2;broker-b:1"
    console.delete(f"/v1/topics/{topic}/order")
    assert console.get(f"/v1/topics/{topic}/order").json["order"] is None


def order_of(suite: Any, topic: str) -> Any:
    return suite.console.get(f"/v1/topics/{topic}/order").json["order"]


@pytest.fixture
def ordered(suite: Any) -> str:
    """A topic of two queues at each broker, in order, which both brokers know."""
    topic = unique_name("topic")
    suite.console.put(f"/v1/topics/{topic}", json={"order": True, "write_queues": 2})
    configs = suite.console.get(f"/v1/topics/{topic}/config").json["items"]
    assert [one["order"] for one in configs] == [True, True]
    return topic


def test_an_order_that_goes_goes_for_all_brokers_and_the_preview_says_so(
    suite: Any, ordered: str
) -> None:
    body = {"order": False, "broker": "broker-a"}
    result = suite.console.put(f"/v1/topics/{ordered}", query=PREVIEW, json=body).json
    gone = f"The order setting of {ordered} would be removed for all brokers: broker-a, broker-b."
    assert result["says"][-1] == gone
    assert order_of(suite, ordered) == "broker-a:2;broker-b:2"
    suite.console.put(f"/v1/topics/{ordered}", json=body)
    assert order_of(suite, ordered) is None


def test_an_order_leaves_out_no_broker_that_does_not_tell(half: Any) -> None:
    """Producers write to no broker that the setting does not name."""
    topic, body = half.topic(), {"order": True, "broker": "broker-a"}
    result = half.console.put(f"/v1/topics/{topic}", query=PREVIEW, json=body).json
    assert result["says"][-1] == "That is refused while broker-b does not respond."
    assert [one["what"] for one in result["missing"]] == ["broker-b"]
    answer = half.console.put(f"/v1/topics/{topic}", json=body)
    assert (answer.status, "broker-b" in answer.json["detail"]) == (503, True)
    assert order_of(half, topic) is None


def test_an_order_leaves_out_no_broker_that_is_away(suite: Any) -> None:
    topic, body = suite.topic(), {"order": True, "broker": "broker-a"}
    suite.look()
    suite.cluster.chaos.kill("broker-b")
    try:
        answer = suite.console.put(f"/v1/topics/{topic}", json=body)
    finally:
        suite.cluster.chaos.restart("broker-b")
    assert (answer.status, "broker-b" in answer.json["detail"]) == (503, True)
    assert order_of(suite, topic) is None


def test_an_order_follows_the_number_of_queues(suite: Any, ordered: str) -> None:
    body = {"write_queues": 1, "broker": "broker-b"}
    result = suite.console.put(f"/v1/topics/{ordered}", query=PREVIEW, json=body).json
    would = f"The order setting of {ordered} would be broker-a:2;broker-b:1 at every name server."
    assert result["says"][-1] == would
    suite.console.put(f"/v1/topics/{ordered}", json=body)
    assert order_of(suite, ordered) == "broker-a:2;broker-b:1"
    suite.console.put(f"/v1/topics/{ordered}", json={"write_queues": 3, "order": True})
    assert order_of(suite, ordered) == "broker-a:3;broker-b:3"


@pytest.mark.parametrize(
    "body",
    [
        {"write_queues": 0},
        {"permission": "x"},
        {"nothing": 1},
        {"broker": "broker-a", "cluster": "DefaultCluster"},
    ],
)
def test_what_cannot_be_is_refused_by_name(suite: Any, body: dict[str, object]) -> None:
    answer = suite.console.put("/v1/topics/orders", json=body)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_unknown_brokers_and_clusters_are_not_found(suite: Any) -> None:
    for body in ({"broker": "nobody"}, {"cluster": "nobody"}):
        assert suite.console.put("/v1/topics/orders", json=body).status == 404


def test_what_a_broker_has_must_be_known_before_it_is_changed(half: Any) -> None:
    """Or what is not named would be put to its usual value there."""
    topic = half.topic()
    result = half.console.put(f"/v1/topics/{topic}", query=PREVIEW, json={"write_queues": 3}).json
    assert [one["what"] for one in result["missing"]] == ["broker-b"]
    answer = half.console.put(f"/v1/topics/{topic}", json={"write_queues": 3})
    assert (answer.status, "broker-b" in answer.json["detail"]) == (503, True)
    half.console.put(f"/v1/topics/{topic}", json={"write_queues": 3, "broker": "broker-a"})
    with half.cluster.client() as mq:
        configs = mq.admin.topics.config(topic)
    assert {name: one.write_queue_nums for name, one in configs.items()} == {
        "broker-a": 3,
        "broker-b": 2,
    }
