"""Sends that are timed, and documents to take home."""

from __future__ import annotations


def test_sends_to_a_topic_and_to_brokers(suite) -> None:
    topic = suite.topic()
    found = suite.console.post("/v1/probes", json={"topic": topic, "count": 4}).json
    assert (found["sent"], found["failed"], found["total"]) == (4, 0, 4)
    assert found["mean_ms"] is not None
    assert [one["sent"] for one in found["brokers"]] == [2, 2]
    each = suite.console.post("/v1/probes", json={"count": 2, "cluster": "DefaultCluster"}).json
    assert {one["broker"]: one["sent"] for one in each["brokers"]} == {"broker-a": 2, "broker-b": 2}
    one = suite.console.post("/v1/probes", json={"broker": "broker-b", "count": 1}).json
    assert [row["status"] for row in one["items"]] == ["SEND_OK"]


def test_a_failed_send_is_told_as_one(suite) -> None:
    topic = suite.topic(queues=1)
    suite.console.put(f"/v1/topics/{topic}/permission", json={"permission": "r"})
    found = suite.console.post("/v1/probes", json={"topic": topic, "count": 1}).json
    assert (found["sent"], found["failed"], found["mean_ms"]) == (0, 1, None)
    assert found["items"][0]["error"]


def test_probes_are_bounded(suite) -> None:
    for body in (
        {"count": 1_001},
        {"size_bytes": 1 << 21},
        {"count": 1_000, "size_bytes": 1 << 20},
        {"topic": "a", "broker": "b"},
    ):
        assert suite.console.post("/v1/probes", json=body).status == 400, body
    assert suite.console.post("/v1/probes", json={"broker": "nobody"}).status == 404
    assert suite.console.post("/v1/probes", json={"topic": "nobody"}).status == 404


def test_exports_leave_out_what_every_broker_has(suite) -> None:
    topic, group = suite.topic(), suite.group()
    found = suite.console.get("/v1/export/metadata", query={"broker": "broker-a"}).json
    assert set(found["topics"]) == {"broker-a"}
    assert topic in {one["topic"] for one in found["topics"]["broker-a"]}
    names = {one["group"] for one in found["groups"]["broker-a"]}
    assert group in names
    assert "TOOLS_CONSUMER" not in names
    configs = suite.console.get("/v1/export/configs").json
    assert configs["brokers"]["broker-b"]["brokerName"] == "broker-b"
    assert configs["totals"] == {"name_servers": 1, "brokers": 2}
    metrics = suite.console.get("/v1/export/metrics").json
    assert metrics["totals"]["msgPutTotalTodayNow"] >= 0
