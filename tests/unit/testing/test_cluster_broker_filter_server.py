"""Filter servers of a cluster in this process: they filter, end, come back, and leave nothing."""

from __future__ import annotations

import pytest

from kourou import Filter
from kourou.errors import BadRequest, FilterFailed, Unavailable
from kourou_filter_server.zygote_link import missing

EVEN = Filter("def match(message, context):\n    return int(message.body) % 2 == 0\n", name="even")


@pytest.fixture(scope="module", autouse=True)
def jail():
    lacking = missing()
    if lacking:
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))


@pytest.fixture
def cluster(kourou_cluster):
    return kourou_cluster(brokers=1, filter_servers=2, filter_settings={"filterWorkersMax": 2})


def test_what_does_not_pass_does_not_arrive(cluster):
    topic = cluster.create_topic(queues=1)
    with cluster.client("g") as mq:
        mq.send_many(topic, [b"%d" % number for number in range(10)])
        with mq.subscribe(topic, EVEN) as numbers:
            assert [int(next(iter(numbers)).body) for _ in range(5)] == [0, 2, 4, 6, 8]


def test_a_server_that_stops_leaves_the_route_and_comes_back(cluster):
    topic = cluster.create_topic(queues=1)
    first, second = cluster.filter_servers
    with cluster.client("g") as mq:
        mq.send(topic, b"2")
        consumer = mq.pull_consumer()
        (queue,) = consumer.queues(topic)
        assert mq.admin.filters.servers() == {
            "broker-a": tuple(sorted((first.address, second.address)))
        }
        cluster.stop_filter_server(0)
        assert (first.is_up, second.is_up) == (False, True)
        with pytest.raises(Unavailable, match="broker-a/0 is down"):
            _ = first.address
        assert mq.admin.filters.servers() == {"broker-a": (second.address,)}
        refresh(mq, topic)
        assert consumer.pull(queue, 0, expression=EVEN).messages
        cluster.stop_filter_server(1)
        cluster.stop_filter_server(1)
        refresh(mq, topic)
        with pytest.raises(FilterFailed, match="no filter server"):
            consumer.pull(queue, 0, expression=EVEN)
        cluster.start_filter_server(0)
        with pytest.raises(BadRequest, match="up already"):
            cluster.start_filter_server(0)
        assert mq.admin.filters.servers() == {"broker-a": (first.address,)}


def refresh(mq, topic: str) -> None:
    """Without it a client finds out by waiting for a connection, 3 s."""
    session = mq._client.session
    session.io.submit(session.routes.refresh(topic)).result()
