"""Settings that may change and those that may not; write permission; counters."""

from __future__ import annotations

import pytest

from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere

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


# -- handing over and promoting say beforehand what would be lost, and who would lead --------------


def test_a_broker_alone_has_nobody_to_hand_over_to(suite) -> None:
    path = "/v1/brokers/broker-a"
    assert suite.console.post(f"{path}/transfer-leader", query=PREVIEW, json={}).status == 400
    answer = suite.console.post(f"{path}/promote", query=PREVIEW, json={"broker_id": 7})
    assert (answer.status, answer.json["hint"]) == (400, "registered: 0")
    assert suite.console.post(f"{path}/promote", json={}).status == 400
    assert suite.console.post("/v1/brokers/nobody/promote", json={"broker_id": 1}).status == 404


def test_a_console_promotes_registered_addresses_only(suite) -> None:
    """Its callers must not make it connect anywhere."""
    path = "/v1/brokers/broker-a/promote"
    for query in (PREVIEW, {}):
        asked = {"address": "127.0.0.1:1", "force": True}
        answer = suite.console.post(path, query=query, json=asked)
        assert answer.status == 400
        assert "is registered at 127.0.0.1:1" in answer.json["detail"]
        assert "kourou admin promote" in answer.json["hint"]
    [one] = suite.console.post(path, query=PREVIEW, json={"broker_id": 0}).json["members"]
    answer = suite.console.post(path, query=PREVIEW, json={"address": one["address"]})
    assert answer.status == 200, answer.text


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A broker with a follower."""
    with (
        Cluster(tmp_path_factory.mktemp("pair"), replicas=1) as cluster,
        ConsoleHere(cluster) as console,
    ):
        yield cluster, console


def test_a_follower_is_promoted_when_its_leader_is_gone(pair) -> None:
    cluster, console = pair
    topic = cluster.create_topic()
    with cluster.client() as mq:
        mq.send(topic, "one")
    path = "/v1/brokers/broker-a/promote"
    result = console.post(path, query=PREVIEW, json={"broker_id": 1}).json
    assert any("refused without force" in one for one in result["says"])
    assert [one["role"] for one in result["members"]] == ["leader", "follower"]
    assert console.post(path, json={"broker_id": 1}).status == 409
    assert console.get("/v1/brokers/broker-a").json["replication"] == "replicas"
    cluster.chaos.kill("broker-a")
    result = console.post(path, query=PREVIEW, json={"broker_id": 1}).json
    assert not any("alive" in one for one in result["says"])
    done = console.post(path, json={"broker_id": 1}).json
    assert done["epoch"] > result["epoch"]
    assert done["leader"] is not None


def test_a_raft_group_hands_its_lead_over(tmp_path) -> None:
    path = "/v1/brokers/broker-a/transfer-leader"
    with Cluster(tmp_path, raft=3) as cluster, ConsoleHere(cluster) as console:
        leading = cluster.leader().removeprefix("broker-a-")
        answer = console.post(path, query=PREVIEW, json={})
        assert answer.status == 200, answer.text
        result = answer.json
        assert (result["leader"], result["preview"]) == (leading, True)
        assert f"in place of {leading}" in result["says"][0]
        assert console.post(path, query=PREVIEW, json={"to": "nobody"}).status == 400
        # Which of them have registered by now is a matter of moments.
        number = next(
            one["registered_id"] for one in result["members"] if one["registered_id"] is not None
        )
        promote = {"broker_id": number}
        refused = console.post("/v1/brokers/broker-a/promote", query=PREVIEW, json=promote)
        assert any("elects its leader" in one for one in refused.json["says"])
        done = console.post(path, json={}).json
        assert done["leader"] not in (None, leading)
        assert done["epoch"] > result["epoch"]
        broker = console.get("/v1/brokers/broker-a").json
        assert (broker["replication"], len(broker["members"])) == ("raft", 3)
