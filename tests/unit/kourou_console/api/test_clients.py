"""Members, what they run, and whether they want the same."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from kourou.model.subscription import Subscription
from kourou.testing.cluster import unique_name
from kourou_console.api.clients import SubscriptionView, clashes_of


def test_who_is_there_and_what_it_runs(suite: Any) -> None:
    console, topic, group = suite.console, suite.topic(), unique_name("group")
    assert console.get(f"/v1/groups/{group}/members").json["items"] == []
    with suite.cluster.client(group) as mq:
        mq.send(topic, "one", tag="a")
        with mq.subscribe(topic, "a || b") as messages:
            assert next(iter(messages)).body == b"one"
            found = console.get(f"/v1/groups/{group}/members").json
            (member,) = found["items"]
            assert found["model"] == "CLUSTERING"
            assert {one["topic"] for one in found["subscriptions"]} >= {topic}
            path = f"/v1/groups/{group}/members/{quote(member['client'], safe='')}/running"
            running = console.get(path, query={"stacks": "true"}).json
            assert {one["topic"] for one in running["queues"]} >= {topic}
            assert "consumerGroup" in running["properties"]
            assert running["stack"]
            assert console.get(path).json["stack"] is None
            wanted = console.get(f"/v1/groups/{group}/subscriptions").json
            assert wanted["clashes"] == []
            assert wanted["items"][0]["client"] == member["client"]
            (producer,) = console.get(f"/v1/producers/{group}").json["items"]
            assert producer["language"] == "PYTHON"
            rows = console.get("/v1/producers").json["items"]
            assert group in {one["group"] for one in rows}
            lag = console.get(f"/v1/groups/{group}/lag").json
            assert member["client"] in {one["member"] for one in lag["items"]}
    assert console.get(path).status in (404, 409)
    assert console.get("/v1/producers/nobody").json["items"] == []


def test_a_member_handles_one_message_now(suite: Any) -> None:
    topic, group = suite.topic(), unique_name("group")
    path = f"/v1/groups/{group}/direct"
    with suite.cluster.client(group) as mq:
        sent = mq.send(topic, "one")
        body = {"topic": topic, "message_id": sent.message_id}
        assert suite.console.post(path, json=body).status in (404, 409)  # nobody is there
        with mq.listen(topic, lambda _message: None):
            done = suite.console.post(path, json=body).json
    assert done["result"] == "CR_SUCCESS"
    body["message_id"] = "0" * 32
    assert suite.console.post(path, json=body).status in (400, 404)


def test_a_filter_in_python_is_named_as_such(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the wire it is a subscription by tags."""

    async def subscriptions_of(_group: str) -> dict[str, list[Subscription]]:
        return {
            "one": [
                Subscription("flights", "late", class_filter_mode=True),
                Subscription("gates", "a"),
            ]
        }

    monkeypatch.setattr(suite.console.gateway.admin.members, "subscriptions", subscriptions_of)
    (one,) = suite.console.get("/v1/groups/boards/subscriptions").json["items"]
    assert [(each["expression"], each["kind"]) for each in one["subscriptions"]] == [
        ("late", "FILTER"),
        ("a", "TAG"),
    ]


def test_members_that_want_different_things_are_named() -> None:
    tag = SubscriptionView("orders", "a", "TAG")
    subscriptions_of = {
        "one": [tag],
        "two": [tag, SubscriptionView("bills", "*", "TAG")],
        "three": [SubscriptionView("orders", "b", "TAG"), SubscriptionView("bills", "*", "TAG")],
    }
    bills, orders = clashes_of(subscriptions_of)
    assert [(side.expression, side.clients) for side in orders.sides] == [
        ("a", ["one", "two"]),
        ("b", ["three"]),
    ]
    assert [(side.expression, side.clients) for side in bills.sides] == [
        ("*", ["three", "two"]),
        (None, ["one"]),
    ]
    assert "are not consumed" in bills.meaning
    assert clashes_of({"one": [tag], "two": [tag]}) == []
