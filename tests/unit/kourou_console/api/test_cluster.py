"""Brokers, their copies and leaders; who does not answer is named and not shown as well."""

from __future__ import annotations

from kourou.client.admin_replicas import LogMember
from kourou.errors import Unavailable
from kourou.protocol.replicas_body import FollowerTold, ReplicasTold
from kourou_console.api.cluster import members_of


def test_all_brokers_of_all_clusters(suite) -> None:
    found = suite.console.get("/v1/cluster").json
    (cluster,) = found["clusters"]
    assert cluster["cluster"] == "DefaultCluster"
    assert [one["broker"] for one in cluster["brokers"]] == ["broker-a", "broker-b"]
    assert found["missing"] == []
    for one in cluster["brokers"]:
        assert (one["up"], one["replication"], one["writable"]) == (True, "none", True)
        assert one["disk_free_bytes"] <= one["disk_total_bytes"]
        assert [member["role"] for member in one["members"]] == ["leader"]
    listed = suite.console.get("/v1/brokers").json
    assert listed["total"] == 2
    one = suite.console.get("/v1/brokers/broker-a").json
    assert one["leader"] == one["members"][0]["address"]


def test_runtime_and_replicas_of_one(suite) -> None:
    raw = suite.console.get("/v1/brokers/broker-a/runtime").json["raw"]
    assert raw["brokerVersionDesc"].startswith("Kourou")
    assert raw["sendLatencyCounts"].startswith("1:")
    (member,) = suite.console.get("/v1/brokers/broker-a/replicas").json["items"]
    assert member["end"] > 0


def test_a_broker_that_is_none_is_not_found(suite) -> None:
    for path in ("", "/runtime", "/replicas", "/config", "/groups", "/history"):
        answer = suite.console.get(f"/v1/brokers/nobody{path}")
        assert answer.status == 404, path
        assert "broker-a" in answer.json["hint"]


def told(number: int, **values: object) -> LogMember:
    fields = {
        "cluster": "C",
        "broker_name": "b",
        "broker_id": number,
        "broker_role": "SYNC_MASTER",
        "leads": False,
        "epoch": 64,
        "leader": "b/0",
        "first": 0,
        "end": 100,
        "flushed": 100,
        "confirmed": 100,
    }
    return LogMember("b", number, f"h:{number}", ReplicasTold(**{**fields, **values}))


def test_what_only_the_leader_knows_stands_with_its_follower() -> None:
    follower = FollowerTold(
        broker_id=1,
        address="x",
        state="REPLICATE",
        written=90,
        flushed=80,
        lag_bytes=10,
        lag_ms=5,
        in_sync=False,
    )
    lost = LogMember("b", 2, "h:2", None, Unavailable("it is down"))
    leader, one, gone = members_of([told(0, leads=True, followers=(follower,)), told(1), lost])
    assert (leader.role, leader.in_sync) == ("leader", None)
    assert (one.role, one.lag_bytes, one.lag_ms, one.in_sync) == ("follower", 10, 5, False)
    assert (gone.role, gone.why) == (None, "it is down")


def test_who_is_outdone_is_fenced_and_does_not_count_as_the_leader() -> None:
    old, new = members_of([told(0, leads=True, fenced=128), told(1, leads=True, epoch=128)])
    assert (old.role, new.role) == ("fenced", "leader")
    assert old.why is not None
    assert "128" in old.why
    (candidate,) = members_of([told(1, member="n1", state="CANDIDATE")])
    assert candidate.role == "candidate"
