"""A group that consumes by leases over HTTP, through a filter in Python beside the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kourou.testing.cluster import Cluster, unique_name
from kourou_filter_server.zygote_link import missing
from kourou_rigs.console import ConsoleHere

EVEN = "def match(message, context):\n    return int(message.body) % 2 == 0\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker and its filter server."""
    if lacking := missing():
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
    with Cluster(tmp_path_factory.mktemp("filtered"), filter_servers=1) as cluster:
        yield cluster


@pytest.mark.feature("F238")
def test_what_the_filter_lets_through_is_leased_and_the_rest_is_passed_over(
    cluster: Cluster,
) -> None:
    topic, group = cluster.create_topic(queues=1), unique_name("group")
    path = f"/v1/groups/{group}/topics/{topic}/leases"
    wish: dict[str, Any] = {"max": 10, "begin": "first", "wait_ms": 20_000, "filter": "even"}
    with ConsoleHere(cluster) as console, cluster.client() as mq:
        mq.send_many(topic, [str(number) for number in range(10)])
        unknown = console.post(path, json=wish)
        assert (unknown.status, "no filter 'even'" in unknown.json["detail"]) == (404, True)
        both = console.post(path, json={**wish, "tags": ["a"]})
        assert both.status == 400
        assert console.get("/v1/leases").json["items"] == []

        mq.admin.filters.put(group, "even", EVEN)
        bodies: list[str] = []
        while len(bodies) < 5:
            for one in console.post(path, json=wish).json["items"]:
                bodies.append(one["message"]["body"])
                assert console.post(f"/v1/leases/{one['lease']}/ack").status == 200
        assert bodies == ["0", "2", "4", "6", "8"]
        [member] = console.get("/v1/leases").json["items"]
        assert [one["filter"] for one in member["topics"]] == ["even"]
        clash = console.post(path, json={**wish, "filter": "odd"})
        assert (clash.status, "by the filter 'even'" in clash.json["detail"]) == (409, True)
        while mq.admin.offsets.lag(group, topic):  # 9 was judged, and is behind the progress, too
            pass
        # A second topic of the group, of which it is a member already.
        other = cluster.create_topic(queues=1)
        mq.send_many(other, ["1", "2"])
        found = console.post(f"/v1/groups/{group}/topics/{other}/leases", json=wish).json["items"]
        assert [one["message"]["body"] for one in found] == ["2"]


@pytest.mark.feature("F238")
def test_who_waits_for_a_filter_that_is_disabled_or_gone_is_told_why(cluster: Cluster) -> None:
    topic, group = cluster.create_topic(queues=1), unique_name("group")
    path = f"/v1/groups/{group}/topics/{topic}/leases"
    wish: dict[str, Any] = {"begin": "first", "filter": "even"}
    with ConsoleHere(cluster) as console, cluster.client() as mq:
        mq.admin.filters.put(group, "even", EVEN)
        mq.admin.filters.disable(group, "even")
        mq.send(topic, "2")
        told = _why(console, path, wish, "")
        assert (told["what"], "disabled" in told["why"]) == (f"{topic}/broker-a/0", True)
        mq.admin.filters.delete(group, "even")
        told = _why(console, path, wish, "disabled")
        assert (told["what"], "even" in told["why"]) == (f"{topic}/broker-a/0", True)
        mq.admin.filters.put(group, "even", EVEN)
        answer = console.post(path, json={**wish, "wait_ms": 20_000}).json
        assert [one["message"]["body"] for one in answer["items"]] == ["2"]
        assert answer["missing"] == []


def _why(console: ConsoleHere, path: str, wish: dict[str, Any], before: str) -> dict[str, str]:
    """Why nothing is leased, when it is told and another reason than before."""
    while True:
        answer = console.post(path, json=wish)
        assert (answer.status, answer.json["items"]) == (200, [])
        for one in answer.json["missing"]:
            if not before or before not in one["why"]:
                return dict(one)
