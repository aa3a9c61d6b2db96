"""The filter server in memory does what tests of clients rely on."""

from __future__ import annotations

import pytest

from kourou import Client, Filter
from kourou.errors import FilterFailed, Rejected
from kourou.model.filter import FilterFailure
from kourou.model.message import PullStatus
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import PullFlag, PullMessage
from kourou_rigs.wire_cluster import WireCluster
from kourou_rigs.wire_filters import WireFilters

QUEUE = MessageQueue("T", "broker-a", 0)
ALL = Filter("def match(message, context):\n    return True\n", name="all")


@pytest.fixture
def cluster():
    cluster = WireCluster()
    cluster.topics["T"] = (1, 1)
    cluster.broker()
    return cluster


async def test_it_leaves_out_what_does_not_pass_and_keeps_the_place(cluster):
    (broker,) = cluster.brokers.values()
    server = cluster.filter_server(broker)
    server.passes = lambda message: message.body == b"1"
    async with Client("127.0.0.1:9876", group="g", dial=cluster.dial) as mq:
        await mq.send_many("T", [b"0", b"1", b"2"])
        consumer = await mq.pull_consumer()
        found = await consumer.pull(QUEUE, 0, expression=ALL)
        assert [message.offset for message in found.messages] == [1]
        assert found.next_offset == 3
        server.passes = lambda message: False
        found = await consumer.pull(QUEUE, 0, expression=ALL)
        assert (found.status, found.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 3)
        server.failure = FilterFailure.TIMEOUT, "too slow"
        with pytest.raises(FilterFailed) as failed:
            await consumer.pull(QUEUE, 1, expression=ALL)
        assert (failed.value.kind, failed.value.hint) == (
            "timeout",
            "consumption stops at offset 1 until the filter works",
        )
    assert cluster.route("T").filter_server_table == {broker.address: (server.address,)}


async def test_a_broker_does_not_answer_for_it(cluster):
    (broker,) = cluster.brokers.values()
    request = PullMessage(
        consumer_group="g",
        topic="T",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=int(PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION),
        subscription="all",
    )
    async with Client("127.0.0.1:9876", group="g", dial=cluster.dial) as mq:
        session = mq._client.session
        with pytest.raises(Rejected, match="ask a filter server"):
            await session.io.run(session.connections.ask(broker.address, request, timeout_ms=1_000))


def test_a_source_keeps_its_version():
    from kourou.protocol.messages.filter_server import PutFilter

    filters = WireFilters()
    put = PutFilter(consumer_group="g", name="n", sha256="")
    one, two = filters.put(put, b"one"), filters.put(put, b"two")
    assert (one.version, one.active, one.created) == (1, 1, True)
    assert (two.version, two.active) == (2, 2)
    again = filters.put(put, b"one")
    assert (again.version, again.active, again.created) == (1, 2, False)
