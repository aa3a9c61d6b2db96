"""Settings that may change and those that may not; write permission; counters."""

from __future__ import annotations

import pytest

PREVIEW = {"preview": "true"}
CONFIG = "/v1/brokers/broker-a/config"


def settings(suite) -> dict[str, dict[str, object]]:
    return {one["name"]: one for one in suite.console.get(CONFIG).json["items"]}


def test_every_setting_says_what_it_may_be(suite) -> None:
    found = settings(suite)
    size = found["maxMessageSize"]
    assert (size["kind"], size["changeable"], size["changed"]) == ("integer", True, False)
    assert size["about"]
    assert size["minimum"] is not None
    port = found["listenPort"]
    assert port["changeable"] is False
    assert "cannot be changed remotely" in str(port["why_not"])
    assert found["traceOn"]["kind"] == "boolean"


def test_a_change_is_tried_made_and_undone(suite) -> None:
    body = {"settings": {"fileReservedTime": "100"}, "reason": "longer"}
    result = suite.console.patch(CONFIG, query=PREVIEW, json=body).json
    assert result["changes"] == [
        {"name": "fileReservedTime", "before": "72", "after": "100", "refused": None}
    ]
    assert settings(suite)["fileReservedTime"]["value"] == "72"
    suite.console.patch(CONFIG, json=body)
    now = settings(suite)["fileReservedTime"]
    assert (now["value"], now["configured"], now["changed"]) == ("100", "72", True)
    query = {"kind": "setting", "name": "fileReservedTime", "count": 1}
    (event,) = suite.console.get("/v1/brokers/broker-a/history", query=query).json["items"]
    assert event["reason"] == "longer"
    path, undo = "/v1/brokers/broker-a/undo", {"offset": event["offset"], "reason": "shorter"}
    result = suite.console.post(path, query=PREVIEW, json=undo).json
    assert result["undone"]["offset"] == event["offset"]
    assert result["items"] == []
    assert settings(suite)["fileReservedTime"]["value"] == "100"
    done = suite.console.post(path, json=undo).json
    assert done["items"][0]["undoes"] == event["offset"]
    assert done["items"][0]["reason"] == "shorter"
    assert settings(suite)["fileReservedTime"]["value"] == "72"


def test_what_would_be_refused_is_said_before_and_refused_then(suite) -> None:
    for name, value in {
        "listenPort": "1",
        "noSuchKey": "1",
        "maxMessageSize": "-1",
        "fileReservedTime": "x",
        "traceOn": "maybe",
        "groupSubscriptionPolicy": "maybe",
    }.items():
        body = {"settings": {name: value}}
        (change,) = suite.console.patch(CONFIG, query=PREVIEW, json=body).json["changes"]
        assert change["refused"], name
        answer = suite.console.patch(CONFIG, json=body)
        assert 400 <= answer.status < 500, name
        assert answer.json["detail"]
    assert suite.console.patch(CONFIG, json={"settings": {}}).status == 400


@pytest.mark.feature("F359")
def test_write_permission_is_taken_and_given_back(suite) -> None:
    path = "/v1/brokers/broker-b/write-permission"
    suite.console.put(path, query=PREVIEW, json={"writable": False})
    assert suite.console.get("/v1/brokers/broker-b").json["writable"] is True
    suite.console.put(path, json={"writable": False})
    assert suite.console.get("/v1/brokers/broker-b").json["writable"] is False
    suite.console.put(path, json={"writable": True})
    assert suite.console.get("/v1/brokers/broker-b").json["writable"] is True


@pytest.mark.parametrize("what", ["expired_log", "expired_queues", "unused_topics"])
def test_cleaning_says_what_it_deletes(suite, what: str) -> None:
    result = suite.console.post(
        "/v1/brokers/broker-a/cleaning", query=PREVIEW, json={"what": what}
    ).json
    assert result["preview"] is True
    done = suite.console.post("/v1/brokers/broker-a/cleaning", json={"what": what})
    assert done.json["says"] == result["says"]
    assert suite.console.post("/v1/brokers/broker-a/cleaning", json={"what": "x"}).status == 400


def test_counters_and_all_progress(suite) -> None:
    topic, group = suite.topic(), suite.group()
    with suite.cluster.client() as mq:
        mq.send(topic, "one")
        ends = dict.fromkeys(mq.admin.topics.stats(topic), 0)
        mq.admin.offsets.commit(group, ends)
    rows = []
    for name in ("broker-a", "broker-b"):
        found = suite.console.get(f"/v1/brokers/{name}/groups").json
        rows += [one for one in found["items"] if one["group"] == group]
        query = {"item": "TOPIC_PUT_NUMS", "key": "nobody"}
        assert suite.console.get(f"/v1/brokers/{name}/statistics", query=query).status == 409
    assert sum(one["lag_messages"] for one in rows) == 1
    behind = [
        one
        for name in ("broker-a", "broker-b")
        for one in suite.console.get(f"/v1/brokers/{name}/groups", query={"level": 1}).json["items"]
        if one["group"] == group
    ]
    assert len(behind) == 1
