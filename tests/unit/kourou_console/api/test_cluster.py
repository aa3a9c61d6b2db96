"""Brokers, their copies and leaders; who does not answer is named and not shown as well."""

from __future__ import annotations

import pytest

from kourou.client.admin.replicas import LogMember
from kourou.errors import Unavailable
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou_console.api.cluster import every_member, members_of


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


def replica(number: int, **values: object) -> LogMember:
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
    return LogMember("b", number, f"h:{number}", ReplicasView(**{**fields, **values}))


def test_what_only_the_leader_knows_stands_with_its_follower() -> None:
    follower = FollowerView(
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
    leader, one, gone = members_of(
        [replica(0, leads=True, followers=(follower,)), replica(1), lost]
    )
    assert (leader.role, leader.in_sync) == ("leader", None)
    assert (one.role, one.lag_bytes, one.lag_ms, one.in_sync) == ("follower", 10, 5, False)
    assert (gone.role, gone.why) == (None, "it is down")


def test_who_is_outdone_is_fenced_and_does_not_count_as_the_leader() -> None:
    old, new = members_of([replica(0, leads=True, fenced=128), replica(1, leads=True, epoch=128)])
    assert (old.role, new.role) == ("fenced", "leader")
    assert old.why is not None
    assert "128" in old.why
    (candidate,) = members_of([replica(1, member="n1", state="CANDIDATE")])
    assert candidate.role == "candidate"


def group_that_lacks_n1(broker: str) -> list[LogMember]:
    """Its leader n0 counts n1 and n2; the name server knows n0 and n2."""
    others = tuple(
        FollowerView(
            broker_id=number,
            address="",
            state="PROBE",
            written=90,
            flushed=90,
            lag_bytes=10,
            lag_ms=None,
            in_sync=False,
            member=f"n{number}",
        )
        for number in (1, 2)
    )
    leader = replica(0, leads=True, member="n0", followers=others, broker_name=broker)
    follower = replica(2, member="n2", state="follower", broker_name=broker)
    return [
        LogMember(broker, one.registered_id, one.address, one.view) for one in (leader, follower)
    ]


def test_a_member_that_its_group_counts_and_nobody_knows_stands_with_the_others() -> None:
    *there, gone = every_member(group_that_lacks_n1("b"))
    assert [(one.member, one.role) for one in there] == [("n0", "leader"), ("n2", "follower")]
    assert (gone.broker, gone.member, gone.registered_id) == ("b", "n1", 1)
    assert (gone.role, gone.address, gone.lag_bytes, gone.end) == ("missing", "", 10, None)
    assert gone.why == "it is not registered with the name servers"


def test_the_answer_names_who_is_not_there(suite, monkeypatch: pytest.MonkeyPatch) -> None:
    async def of(broker: str) -> list[LogMember]:
        return group_that_lacks_n1(broker)

    monkeypatch.setattr(suite.console.gateway.admin.replicas, "of", of)
    found = suite.console.get("/v1/brokers/broker-a/replicas").json
    assert found["total"] == 3
    assert found["missing"] == [{"what": "n1", "why": "it is not registered with the name servers"}]
    whole = suite.console.get("/v1/brokers/broker-a").json
    assert [one["role"] for one in whole["members"]] == ["leader", "follower", "missing"]
    assert whole["replication"] == "raft"
