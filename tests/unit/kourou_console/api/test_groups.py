"""Groups made, changed, deleted; over brokers that agree or not."""

from __future__ import annotations

from typing import Any

from kourou.testing.cluster import unique_name
from kourou_console.metrics.sampler import Sampler

PREVIEW = {"preview": "true"}


def test_a_group_is_made_and_changed(suite: Any) -> None:
    console, group = suite.console, unique_name("group")
    assert console.put(f"/v1/groups/{group}", query=PREVIEW, json={}).json["created"] is True
    assert console.get(f"/v1/groups/{group}").status == 404
    console.put(f"/v1/groups/{group}", json={"attempts": 3, "reason": "be quick"})
    body = {"consume_enabled": False, "broker": "broker-b"}
    done = console.put(f"/v1/groups/{group}", json=body).json
    assert done["items"][0]["after"]["attempts"] == 3  # it was not named, so it stays
    assert any("receive no more" in one for one in done["says"])
    found = console.get(f"/v1/groups/{group}").json
    assert (found["attempts"], found["consume_enabled"]) == (3, None)
    assert found["clashes"] == ["consume enabled: true at broker-a, false at broker-b"]
    assert [one["reason"] for one in suite.history("group", group)].count("be quick") == 2


def test_the_list_has_lag_of_the_last_sample(suite: Any) -> None:
    topic, group = suite.topic(), unique_name("group")
    with suite.consuming(topic, group):
        found = suite.console.get("/v1/groups", query={"search": group}).json
        assert (found["items"][0]["members"], found["items"][0]["model"]) == (1, "CLUSTERING")
    suite.look()
    (row,) = suite.console.get("/v1/groups", query={"search": group}).json["items"]
    assert row["lag_messages"] is not None
    assert row["members"] == 0
    names = {one["group"] for one in suite.console.get("/v1/groups").json["items"]}
    assert "TOOLS_CONSUMER" not in names
    every = suite.console.get("/v1/groups", query={"system": "true"}).json["items"]
    assert "TOOLS_CONSUMER" in {one["group"] for one in every}


def test_a_deletion_says_what_goes(suite: Any) -> None:
    console, topic, group = suite.console, suite.topic(), unique_name("group")
    with suite.consuming(topic, group):
        result = console.delete(f"/v1/groups/{group}", query=PREVIEW).json
        assert result["members"] == 1
        assert topic in result["topics"]
    query = {"remove_offsets": "true", "reason": "done"}
    done = console.delete(f"/v1/groups/{group}", query=query).json
    assert any("offsets are deleted" in one for one in done["says"])
    [newest] = suite.history("group", group, count=1)
    assert newest["reason"] == "done"
    assert console.delete(f"/v1/groups/{group}").status == 404


def test_of_a_deleted_group_only_what_is_left_is_listed(suite: Any) -> None:
    console, topic, group = suite.console, suite.topic(), unique_name("group")
    with suite.consuming(topic, group):
        pass
    suite.look()
    console.delete(f"/v1/groups/{group}")
    (row,) = console.get("/v1/groups", query={"search": group}).json["items"]
    assert (row["configured"], row["brokers"], row["members"]) == (False, [], 0)
    assert console.get(f"/v1/groups/{group}").json["topics"] == [topic]
    console.delete(f"/v1/groups/{group}", query={"remove_offsets": "true"})
    # The last sample still has it.
    assert group in console.gateway.part(Sampler).lags()
    assert console.get("/v1/groups", query={"search": group}).json["items"] == []
    assert console.get(f"/v1/groups/{group}").status == 404


def test_nobody_is_not_found(suite: Any) -> None:
    assert suite.console.get("/v1/groups/nobody").status == 404
    assert suite.console.delete("/v1/groups/nobody").status == 404
    assert suite.console.get("/v1/groups/nobody/lag").status == 404
    assert suite.console.put("/v1/groups/bad%20name", json={}).status == 400


def test_what_a_broker_has_must_be_known_before_it_is_changed(half: Any) -> None:
    name = unique_name("group")
    body = {"attempts": 2}
    result = half.console.put(f"/v1/groups/{name}", query=PREVIEW, json=body).json
    assert [one["what"] for one in result["missing"]] == ["broker-b"]
    assert half.console.put(f"/v1/groups/{name}", json=body).status == 503
    listed = half.console.get("/v1/groups").json
    assert (listed["total"], listed["missing"][0]["what"]) == (None, "broker-b")
