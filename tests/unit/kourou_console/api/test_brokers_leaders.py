"""Handing over and promoting say beforehand what would be lost, and who would lead."""

from __future__ import annotations

import pytest

from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere

PREVIEW = {"preview": "true"}


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
