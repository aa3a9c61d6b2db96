"""A queue is looked at from any place on, and nothing of it changes."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.model.topic import MessageQueue
from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere


@pytest.fixture
def cluster(suite: Any) -> Cluster:
    """Its cluster."""
    return suite.cluster


@pytest.fixture
def console(suite: Any) -> ConsoleHere:
    """Its console."""
    return suite.console


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(queues=2)


def test_a_queue_from_an_offset_on(cluster, console, topic):
    queue = MessageQueue(topic, "broker-b", 1)
    with cluster.client() as mq:
        for number in range(30):
            mq.send(topic, f"{number}", queue=queue)
    path = f"/v1/topics/{topic}/queues/broker-b/1/messages"
    last = console.get(path).json
    assert [one["offset"] for one in last["items"]] == list(range(10, 30))
    assert (last["total"], last["truncated"], last["next_offset"]) == (30, False, 30)
    first = console.get(path, query={"offset": "0", "count": "3"}).json
    assert ([one["body"] for one in first["items"]], first["truncated"]) == (["0", "1", "2"], True)
    beyond = console.get(path, query={"offset": "999"}).json
    assert (beyond["items"], beyond["next_offset"]) == ([], 30)
    assert console.get(f"/v1/topics/{topic}/queues/broker-b/9/messages").status == 404
    assert console.get("/v1/topics/no-such/queues/broker-a/0/messages").status == 404


def test_numbers_out_of_range_are_refused(console, topic):
    path = f"/v1/topics/{topic}/queues/broker-a/0/messages"
    for name, value in (
        ("offset", str(10**30)),
        ("count", "0"),
        ("count", "x"),
        ("body_max", "-1"),
    ):
        answer = console.get(path, query={name: value})
        assert (answer.status, name in answer.json["detail"]) == (400, True)
