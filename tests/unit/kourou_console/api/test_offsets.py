"""A group is moved where the preview said, and its lag is reported in messages and time."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper
from kourou.testing.cluster import unique_name
from kourou_console.api.groups import lag_messages

PREVIEW = {"preview": "true"}


@pytest.fixture
def consumed(suite: Any) -> tuple[str, str]:
    """A topic and a group that has consumed four messages of it; four more wait."""
    topic, group = suite.topic(), unique_name("group")
    assert suite.console.put(f"/v1/groups/{group}", json={}).status == 200
    suite.send(topic, 4)
    with suite.cluster.client() as mq:
        ends = {queue: one.max_offset for queue, one in mq.admin.topics.stats(topic).items()}
        mq.admin.offsets.commit(group, ends)
    suite.send(topic, 4)
    return topic, group


def lag_of(suite: Any, group: str, topic: str) -> int | None:
    found = suite.console.get(f"/v1/groups/{group}/lag", query={"topic": topic}).json
    lag: int | None = found["lag_messages"]
    return lag


def test_lag_queue_by_queue(suite: Any, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    found = suite.console.get(f"/v1/groups/{group}/lag", query={"topic": topic}).json
    assert found["lag_messages"] == sum(one["lag_messages"] for one in found["items"]) == 4
    assert found["topics"][0]["topic"] == topic
    for one in found["items"]:
        assert one["end"] - one["committed"] == one["lag_messages"]
        assert (one["lag_ms"] == 0) == (one["lag_messages"] == 0) or one["lag_ms"] is not None
    cut = suite.console.get(f"/v1/groups/{group}/lag", query={"limit": 1}).json
    assert (len(cut["items"]), cut["truncated"]) == (1, True)


def test_a_group_and_its_queues_tell_the_same_lag(suite: Any, consumed: tuple[str, str]) -> None:
    """Both as of now, whenever the last sample was; and how fast the group gets messages."""
    topic, group = consumed
    suite.look()
    suite.send(topic, 1)
    now = suite.console.get(f"/v1/groups/{group}").json
    queues = suite.console.get(f"/v1/groups/{group}/lag").json
    assert now["lag_messages"] == queues["lag_messages"] == 5
    assert queues["topics"][0]["out_per_s"] == 0.0


def test_what_was_dealt_with_among_dead_letters_is_no_lag() -> None:
    def at(topic: str) -> MessageQueue:
        return MessageQueue(topic, "broker-a", 0)

    behind = OffsetWrapper(broker_offset=9, consumer_offset=4)
    ahead = OffsetWrapper(broker_offset=3, consumer_offset=4)
    assert lag_messages({at("orders"): behind, at("bills"): ahead, at("%DLQ%g"): behind}) == 5


@pytest.mark.feature("F057", "F269", "F364")
def test_a_reset_goes_where_its_preview_said(suite: Any, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    path = f"/v1/groups/{group}/topics/{topic}/offsets/reset"
    result = suite.console.post(path, query=PREVIEW, json={"to": "begin"}).json
    assert (result["skipped"], result["repeated"]) == (0, 4)
    assert lag_of(suite, group, topic) == 4, "nothing was moved"
    body = {"to": "begin", "reason": "again, please"}
    done = suite.console.post(path, json=body).json
    assert done["items"] == result["items"]
    assert lag_of(suite, group, topic) == 8
    past = suite.history("progress", group, type="OffsetsReset")
    assert {one["reason"] for one in past} == {"again, please"}


def test_without_force_nothing_goes_forward(suite: Any, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    path = f"/v1/groups/{group}/topics/{topic}/offsets/reset"
    at_ms = suite.cluster.clock.now_ms + 3_600_000
    result = suite.console.post(
        path, query=PREVIEW, json={"to": "time", "at_ms": at_ms, "force": False}
    ).json
    assert (result["skipped"], result["repeated"]) == (0, 0)
    result = suite.console.post(path, query=PREVIEW, json={"to": "time", "at_ms": at_ms}).json
    assert result["skipped"] == 4


def test_skipping_what_waits(suite: Any, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    path = f"/v1/groups/{group}/topics/{topic}/offsets/skip"
    result = suite.console.post(path, query=PREVIEW, json={}).json
    assert result["skipped"] == 4
    assert "4 unconsumed messages would be skipped." in result["says"]
    assert suite.console.post(path, json={}).json["skipped"] == 4
    assert lag_of(suite, group, topic) == 0


def test_a_clone_begins_where_another_stands(suite: Any, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    other = suite.group()
    path = f"/v1/groups/{other}/offsets/clone"
    body = {"from_group": group, "topic": topic}
    result = suite.console.post(path, query=PREVIEW, json=body).json
    assert {one["from"] for one in result["items"]} == {None}
    assert suite.console.post(path, json=body).json["items"] == result["items"]
    assert lag_of(suite, other, topic) == 4


@pytest.mark.parametrize(
    "body", [{"to": "time"}, {"to": "end", "at_ms": 5}, {"to": "there"}, {"to": "begin", "x": 1}]
)
def test_what_means_nothing_is_refused(suite: Any, body: dict[str, object]) -> None:
    path = "/v1/groups/g/topics/t/offsets/reset"
    assert suite.console.post(path, json=body).status == 400


def test_nobody_is_not_found(suite: Any) -> None:
    topic = suite.topic()
    path = f"/v1/groups/nobody/topics/{topic}/offsets/reset"
    assert suite.console.post(path, query=PREVIEW, json={"to": "end"}).status == 404
    path = f"/v1/groups/{suite.group()}/topics/nobody/offsets/reset"
    assert suite.console.post(path, query=PREVIEW, json={"to": "end"}).status == 404
