"""Brokers, their copies and leaders; who does not answer is named and not shown as well."""

from __future__ import annotations

import pytest

from kourou.client.admin.replicas import LogMember
from kourou.errors import Unavailable
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
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


def test_a_member_that_its_group_counts_and_nobody_knows_is_named_and_stands_with_the_others(
    suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def of(broker: str) -> list[LogMember]:
        return group_that_lacks_n1(broker)

    monkeypatch.setattr(suite.console.gateway.admin.replicas, "of", of)
    found = suite.console.get("/v1/brokers/broker-a/replicas").json
    *there, gone = found["items"]
    assert [(one["member"], one["role"]) for one in there] == [("n0", "leader"), ("n2", "follower")]
    assert (gone["broker"], gone["member"], gone["registered_id"]) == ("broker-a", "n1", 1)
    assert (gone["role"], gone["address"], gone["lag_bytes"], gone["end"]) == (
        *("missing", "", 10, None),
    )
    assert found["total"] == 3
    assert found["missing"] == [{"what": "n1", "why": "it is not registered with the name servers"}]
    whole = suite.console.get("/v1/brokers/broker-a").json
    assert [one["role"] for one in whole["members"]] == ["leader", "follower", "missing"]
    assert whole["replication"] == "raft"


# -- name servers, and the keys that they keep -----------------------------------------------------


PREVIEW = {"preview": "true"}


def test_who_answers_with_which_settings(suite) -> None:
    found = suite.console.get("/v1/name-servers").json
    (one,) = found["items"]
    assert (one["up"], one["why"]) == (True, None)
    assert "listenPort" in one["settings"]


def test_keys_come_and_go(suite) -> None:
    path, listed = "/v1/name-servers/values/OURS/key%20one", "/v1/name-servers/values"
    result = suite.console.put(path, query=PREVIEW, json={"value": "a"}).json
    assert result["says"][1] == "It was not there."
    assert suite.console.get(listed, query={"namespace": "OURS"}).json["items"] == []
    suite.console.put(path, json={"value": "a"})
    assert suite.console.get(listed, query={"namespace": "OURS"}).json["items"] == [
        {"namespace": "OURS", "key": "key one", "value": "a"}
    ]
    assert suite.console.delete(path, query=PREVIEW).json["says"][1] == "It was a."
    suite.console.delete(path)
    assert suite.console.get(listed, query={"namespace": "OURS"}).json["items"] == []


def test_a_setting_that_may_not_change_is_refused(suite) -> None:
    path, body = "/v1/name-servers/config", {"settings": {"listenPort": "1"}}
    assert suite.console.patch(path, query=PREVIEW, json=body).status == 200
    answer = suite.console.patch(path, json=body)
    assert 400 <= answer.status < 500


# -- quotas over HTTP: what is listed, set, previewed and removed, and what is refused -------------


PATH = "/v1/quotas/user/quota-till"


def test_quotas_come_and_go(suite) -> None:
    body = {"publish_bytes": 1_000, "requests": 50, "reason": "fair"}
    said = "user quota-till would be limited to 1000 publish bytes/s, 50 requests/s at each broker."
    assert suite.console.put(PATH, query=PREVIEW, json=body).json["says"] == [said]
    assert suite.console.get("/v1/quotas").json["items"] == []
    assert suite.console.put(PATH, json=body).status == 200
    [item] = suite.console.get("/v1/quotas").json["items"]
    assert item == {
        "kind": "user",
        "name": "quota-till",
        "publish_bytes": 1_000,
        "publish_messages": None,
        "fetch_bytes": None,
        "fetch_messages": None,
        "requests": 50,
        "connections": None,
        "topics": None,
        "groups": None,
        "stored_bytes": None,
        "brokers": ["broker-a", "broker-b"],
    }
    assert suite.console.put(PATH, json={}).json["says"] == ["user quota-till is not limited."]
    assert suite.console.delete(PATH, query=PREVIEW).status == 200
    assert suite.console.get("/v1/quotas").json["total"] == 1
    assert suite.console.delete(PATH, query={"reason": "over"}).status == 200
    assert suite.console.get("/v1/quotas").json["total"] == 0


def test_what_cannot_be_limited_is_refused(suite) -> None:
    for path, body, text in (
        ("/v1/quotas/queue/x", {"requests": 5}, "has no quotas"),
        ("/v1/quotas/group/g", {"publish_bytes": 5}, "a group has no quota of publish bytes"),
        ("/v1/quotas/topic/a%20b", {"fetch_bytes": 5}, "has a character outside"),
        (PATH, {"requests": 0}, "requests"),
        (PATH, {"request": 5}, "request"),
    ):
        answer = suite.console.put(path, json=body)
        assert 400 <= answer.status < 500
        assert text in answer.json["detail"], answer.json
    assert suite.console.delete(PATH).status >= 400


def test_a_send_over_a_quota_is_429_with_the_time_to_try_again(suite) -> None:
    topic = suite.topic()
    path = f"/v1/quotas/topic/{topic}"
    assert suite.console.put(path, json={"publish_bytes": 1}).status == 200
    sends = [suite.console.post(f"/v1/topics/{topic}/messages", body=b"x" * 100) for _ in range(5)]
    assert sends[0].status < 300
    refused = next(one for one in sends if one.status == 429)
    assert int(refused.headers["retry-after"]) > 60
    assert "over its quota of 1 publish bytes/s" in refused.json["detail"]
    assert suite.console.delete(path).status == 200
