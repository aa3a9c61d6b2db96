"""Decisions of several brokers in one list, page by page, and what held when."""

from __future__ import annotations

from typing import get_args

import pytest

from kourou.engine.policy import TopicRules
from kourou.events.control_events import EVENT_TYPES, FilterEvent
from kourou.testing.cluster import unique_name
from kourou_console.api.history import SKIPPED, UNDONE, effect, refusal
from kourou_console.topic_kinds import _PURPOSES

PASSING = "def match(message, context):\n    return True\n"


def test_pages_over_brokers_show_everything_once(suite) -> None:
    topic = unique_name("topic")
    for queues in range(1, 5):
        body = {"write_queues": queues, "reason": f"step {queues}"}
        assert suite.console.put(f"/v1/topics/{topic}", json=body).status == 200
    query: dict[str, object] = {"kind": "topic", "name": topic, "count": 3}
    seen, pages, cursor = [], 0, None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        found = suite.console.get("/v1/history", query={**query, **more}).json
        seen += [(one["broker"], one["offset"], one["reason"]) for one in found["items"]]
        pages, cursor = pages + 1, found["cursor"]
        assert len(found["items"]) <= 3
        assert found["truncated"] == (cursor is not None)
        if cursor is None:
            break
    assert pages >= 3
    assert len(seen) == len(set(seen)) == 8
    assert {one[2] for one in seen} == {f"step {number}" for number in range(1, 5)}


def test_one_kind_only_and_one_type_only(suite) -> None:
    suite.topic()
    suite.group()
    groups = suite.console.get("/v1/history", query={"kind": "group", "count": 5}).json["items"]
    assert {one["kind"] for one in groups} == {"group"}
    query = {"type": ["TopicPut", "TopicDeleted"], "count": 5}
    topics = suite.console.get("/v1/history", query=query).json["items"]
    assert {one["kind"] for one in topics} == {"topic"}
    times = [one["at_ms"] for one in suite.console.get("/v1/history").json["items"]]
    assert times == sorted(times, reverse=True)


def test_as_of_any_event(suite) -> None:
    topic = unique_name("topic")
    for queues in (1, 4):
        suite.console.put(f"/v1/topics/{topic}", json={"write_queues": queues})
    query = {"kind": "topic", "name": topic, "broker": "broker-a"}
    late, early = suite.console.get("/v1/history", query=query).json["items"]
    state = {"broker": "broker-a", "aggregate": f"topic/{topic}"}
    found = suite.console.get("/v1/history/state", query={**state, "offset": early["offset"]}).json
    assert found["value"]["write_queue_nums"] == 1
    assert suite.console.get("/v1/history/state", query=state).json["value"][
        "write_queue_nums"
    ] == (4)
    before = {**state, "at_ms": 1}
    assert suite.console.get("/v1/history/state", query=before).json["value"] is None
    undo = {"broker": "broker-a", "offset": late["offset"], "force": True}
    result = suite.console.post("/v1/history/undo", query={"preview": "true"}, json=undo).json
    assert result["undone"]["fields"]["before"]["write_queue_nums"] == 1
    suite.console.post("/v1/history/undo", json=undo)
    value = suite.console.get("/v1/history/state", query=state).json["value"]
    assert value["write_queue_nums"] == 1


def test_what_no_broker_takes_back_says_so_and_is_refused(suite) -> None:
    group = suite.group()
    query = {"broker": "broker-a", "type": ["TopicPut", "GroupPut", "EpochOpened"], "count": 200}
    final, cursor = {}, None
    while cursor is not None or not final:
        more = {} if cursor is None else {"cursor": cursor}
        page = suite.console.get("/v1/history", query={**query, **more}).json
        for one in page["items"]:
            final.setdefault(one["aggregate"], one)
        cursor = page["cursor"]
    assert final[f"group/{group}"]["final"] is None
    for name in ("topic/TBW102", "topic/broker-a", "topic/DefaultCluster", "group/TOOLS_CONSUMER"):
        assert "is a system" in final[name]["final"], name
        body = {"broker": "broker-a", "offset": final[name]["offset"], "force": True}
        result = suite.console.post("/v1/history/undo", json=body)
        shown = suite.console.post("/v1/history/undo", query={"preview": "true"}, json=body)
        assert (shown.status, shown.json) == (result.status, result.json), name
        assert (result.status, result.json["detail"]) == (409, final[name]["final"]), name


def test_a_preview_of_a_filters_event_is_what_the_call_would_be(suite) -> None:
    group, name = suite.group(), unique_name("filter")
    path = f"/v1/filters/{group}/{name}"
    suite.console.put(path, json={"source": PASSING, "broker": "broker-a"})
    query = {"broker": "broker-a", "kind": "filter", "name": f"{group}/{name}"}

    def both(event: dict[str, object], *, calls: bool = True):
        body = {"broker": "broker-a", "offset": event["offset"]}
        shown = suite.console.post("/v1/history/undo", query={"preview": "true"}, json=body)
        return shown, suite.console.post("/v1/history/undo", json=body) if calls else None

    events = suite.console.get("/v1/history", query=query).json["items"]
    enabled = next(one for one in events if one["type"] == "FilterEnabled")
    shown, _ = both(enabled, calls=False)
    assert shown.status == 200
    assert "No version is enabled" in shown.json["says"][1]
    assert suite.console.delete(path).status == 200
    shown, result = both(enabled)
    assert (shown.status, shown.json) == (result.status, result.json)
    assert shown.status == 404
    suite.console.put(path, json={"source": PASSING, "broker": "broker-a"})
    events = suite.console.get("/v1/history", query=query).json["items"]
    deleted = next(one for one in events if one["type"] == "FilterDeleted")
    shown, result = both(deleted)
    assert (shown.status, shown.json) == (result.status, result.json)
    assert shown.status == 409


def test_what_means_nothing_is_refused(suite) -> None:
    for query in ({"cursor": "x"}, {"name": "orders"}, {"count": 0}, {"until_ms": "soon"}):
        assert suite.console.get("/v1/history", query=query).status == 400, query
    assert suite.console.get("/v1/history/state").status == 400  # which of two brokers?
    path, body = "/v1/brokers/broker-a/undo", {"broker": "broker-b", "offset": 1}
    assert suite.console.post(path, json=body).status == 400
    gone = {"offset": 10**9}
    answer = suite.console.post(path, query={"preview": "true"}, json=gone).json
    assert answer["undone"] is None
    assert answer["missing"]
    assert 400 <= suite.console.post(path, json=gone).status < 500


# -- what brokers never take back is not offered; the rest is theirs to judge ----------------------


def test_the_types_are_those_that_brokers_take_back() -> None:
    filters = {kind.__name__ for kind in get_args(FilterEvent)} - {SKIPPED}
    others = {"TopicPut", "TopicDeleted", "GroupPut", "GroupDeleted"}
    assert filters | others | {"SettingChanged", "OffsetsReset"} == UNDONE
    assert UNDONE < EVENT_TYPES
    for kind in EVENT_TYPES - UNDONE:
        assert refusal(kind, "x", created=False)


@pytest.mark.parametrize("topic", [*_PURPOSES, "broker-a", "shop", "shop_REPLY_TOPIC"])
def test_a_broker_owns_every_topic_that_is_refused(topic: str) -> None:
    assert TopicRules(cluster_name="shop", broker_name="broker-a").owns(topic)
    for kind in ("TopicPut", "TopicDeleted"):
        why = refusal(kind, topic, created=True, brokers=["broker-a"], clusters=["shop"])
        assert why is not None
        assert "is a system" in why


def test_what_may_be_taken_back() -> None:
    assert refusal("TopicPut", "orders", created=True) is None
    assert refusal("TopicPut", "%RETRY%billing", created=True) is None
    assert refusal("GroupPut", "billing", created=True) is None
    assert refusal("GroupPut", "TOOLS_CONSUMER", created=False) is None
    assert refusal("SettingChanged", "fileReservedTime", created=False) is None
    assert refusal("GroupPut", "TOOLS_CONSUMER", created=True)


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        ("TopicPut", {"before": None}, "deleted with its messages, only with force"),
        ("TopicPut", {"before": {"name": "orders"}}, "The previous state is restored"),
        ("TopicDeleted", {"before": {"name": "orders"}}, "The previous state is restored"),
        ("GroupPut", {}, "before: it is deleted"),
        ("GroupPut", {"before": {"name": "billing"}}, "The previous state is restored"),
        ("SettingChanged", {"before": None}, "the broker's file"),
        ("SettingChanged", {"before": 4}, "The previous state is restored"),
        ("OffsetsReset", {"before": {"0": 4}}, "before the reset"),
        ("FilterUploaded", {"version": 3}, "Version 3 is deleted"),
        ("FilterEnabled", {"version": 3, "before": None}, "No version is enabled"),
        ("FilterEnabled", {"version": 3, "before": 2}, "Version 2 is enabled again"),
        ("FilterDisabled", {"before": 2}, "Version 2 is enabled again"),
        ("FilterPolicySet", {"before": {}}, "The previous policy"),
        ("FilterQuarantined", {"version": 3}, "The quarantine of version 3 ends"),
        ("FilterReleased", {"version": 3}, "Version 3 is quarantined again"),
        ("FilterDeleted", {"before": {}}, "is restored with all its versions"),
        ("FilterRestored", {}, "deleted again"),
    ],
)
def test_a_preview_says_what_its_kind_of_event_does(
    kind: str, fields: dict[str, object], says: str
) -> None:
    assert kind in UNDONE
    assert says in effect(kind, fields)
