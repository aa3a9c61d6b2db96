"""The blocking client opens and closes like the other one."""

from __future__ import annotations

import asyncio
import os

import pytest

from kourou import ConsumerSettings, Filter
from kourou.client.session.io_thread import ClientClosed, ForkedClient
from kourou.errors import ConfigError, FilterFailed
from kourou.model.filter import FilterFailure
from kourou.sync import Client
from kourou.time_limit import within
from kourou_rigs.wire_cluster import WireCluster


@pytest.fixture
def cluster():
    cluster = WireCluster()
    cluster.broker()
    return cluster


def client(cluster) -> Client:
    return Client("127.0.0.1:9876", group="g", dial=cluster.dial)


def test_it_opens_and_closes(cluster):
    mq = client(cluster)
    with pytest.raises(ClientClosed):
        mq.send("T", b"")
    with mq:
        assert mq.client_id
        assert mq.send("T", b"x").offset == 0
    with pytest.raises(ClientClosed):
        mq.send("T", b"")
    with mq:
        assert mq.send("T", b"x").queue.topic == "T"


def test_two_clients_are_two_members(cluster):
    with client(cluster) as first, client(cluster) as second:
        assert first.client_id != second.client_id
        assert first._client.io is second._client.io


THIRDS = "def match(message, context):\n    return int(message.body) % 3 == 0\n"


@pytest.mark.feature("F238", "F241")
def test_a_filter_is_used_as_in_the_other_face(cluster):
    (broker,) = cluster.brokers.values()
    cluster.topics["T"] = (1, 1)
    server = cluster.filter_server(broker)
    server.passes = lambda message: int(message.body) % 3 == 0
    thirds = Filter(THIRDS, name="thirds")
    first = ConsumerSettings(consumer_group="g", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    with Client("127.0.0.1:9876", consumer=first, dial=cluster.dial) as mq:
        mq.send_many("T", [b"%d" % number for number in range(10)])
        with mq.subscribe("T", thirds) as numbers:
            assert [next(iter(numbers)).body for _ in range(4)] == [b"0", b"3", b"6", b"9"]
            assert numbers.waiting == {}
        puller = mq.pull_consumer("g")
        (queue,) = puller.queues("T")
        found = puller.pull(queue, 0, expression=thirds)
        assert [message.offset for message in found.messages] == [0, 3, 6, 9]
        server.failure = FilterFailure.RAISED, "line 2"
        with pytest.raises(FilterFailed, match="line 2"):
            puller.pull(queue, 0, expression=thirds)
    assert [one.source for one in broker.filter("thirds").versions] == [THIRDS]


def test_without_name_servers(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError):
        Client()


@pytest.mark.fault
def test_after_a_fork_the_old_one_says_so_and_a_new_one_works(cluster):
    with client(cluster) as mq:
        mq.send("T", b"parent")
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            outcome = b"nothing"
            try:
                try:
                    mq.send("T", b"child")
                except ForkedClient:
                    outcome = b"told"
                mq.close()
                with client(cluster) as own:
                    own.send("T", b"child")
                    outcome += b" and sent"
            finally:
                os.write(write_end, outcome)
                os._exit(0)
        os.close(write_end)
        outcome = os.read(read_end, 100)
        os.close(read_end)
        os.waitpid(child, 0)
        assert outcome == b"told and sent"
        assert mq.send("T", b"parent").offset >= 0


# -- waiting with a time limit ---------------------------------------------------------------------


async def test_work_has_its_result_or_its_time_is_up():
    assert await within(asyncio.sleep(0, "done"), 60) == "done"
    with pytest.raises(TimeoutError):
        await within(asyncio.Event().wait(), 0)


async def test_a_cancellation_that_comes_with_the_result_is_not_lost():
    work = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(within(work, 60))
    await asyncio.sleep(0)
    work.set_result("done")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
