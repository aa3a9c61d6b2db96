"""The client against a name server and brokers, over real sockets.

They live in this process, on a thread of their own; the one that is killed under load is a process.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest

from kourou import Client, ClientSettings, ConsumerSettings, Message, ProducerSettings, SendStatus
from kourou import sync as blocking
from kourou.client.session.io_thread import ForkedClient
from kourou.errors import BadRequest, MessageIllegal, TopicNotFound, Unavailable
from kourou.model.message import PullStatus
from kourou.model.subscription import ConsumeFromWhere, MessageModel
from kourou.model.topic import MessageQueue
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.testing.cluster import Cluster
from kourou_rigs.waiting import until

_numbers = count(1)


class Order(msgspec.Struct):
    id: str
    amount: int


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), brokers=2) as cluster:
        yield cluster


@pytest.fixture
def names():
    """A topic and a group that no other test uses."""
    number = next(_numbers)
    return f"Topic{number}", f"group{number}"


@pytest.fixture
def client(running, names, tmp_path):
    def make(**settings) -> Client:
        settings.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        return Client(
            running.address,
            group=names[1],
            settings=ClientSettings(
                persist_consumer_offset_interval_ms=100, local_offsets_dir=str(tmp_path)
            ),
            consumer=ConsumerSettings(consumer_group=names[1], **settings),
        )

    return make


class Inbox:
    def __init__(self, wanted: int) -> None:
        self.bodies: list = []
        self.wanted = wanted
        self.full = asyncio.Event()

    async def handle(self, item) -> None:
        self.bodies += [one.body for one in (item if isinstance(item, list) else [item])]
        if len(self.bodies) >= self.wanted:
            self.full.set()


@pytest.mark.feature("F001", "F002", "F017", "F164")
async def test_a_message_from_end_to_end(client, names):
    topic, _ = names
    async with client() as mq:
        await mq.admin.topics.create(topic, queues=2)
        result = await mq.send(topic, Order("A-1", 42), tag="paid", keys=["A-1"])
        assert result.status is SendStatus.SEND_OK
        async with mq.subscribe(topic, "paid || refunded", body_type=Order) as orders:
            message = await anext(aiter(orders))
            assert (message.body, message.tag, message.keys) == (
                Order("A-1", 42),
                "paid",
                ("A-1",),
            )
            assert message.message_id == result.message_id
            assert message.queue == result.queue
            assert (message.offset, message.position > 0) == (result.offset, True)
            assert message.offset_message_id == result.offset_message_id
            message.ack()


@pytest.mark.feature("F032")
async def test_a_list_of_name_servers_is_used_although_one_of_them_is_gone(running, names):
    """Each client begins with one of them at random."""
    topic, _ = names
    async with Client(running.address) as mq:
        await mq.admin.topics.create(topic, queues=1)
    with socket.socket() as closed:  # bound, and nothing listens: connections are refused
        closed.bind(("127.0.0.1", 0))
        addresses = f"127.0.0.1:{closed.getsockname()[1]};{running.address}"
        for _ in range(2):
            async with Client(addresses) as mq:
                assert (await mq.send(topic, b"x")).status is SendStatus.SEND_OK


@pytest.mark.feature("F162", "F010", "F204", "F007", "F015", "F058")
async def test_a_backlog_over_two_brokers_is_shared_by_two_members(client, names):
    topic, group = names
    async with client() as mq:
        await mq.admin.topics.create(topic, queues=3)
        results = await mq.send_many(topic, [b"%d" % number for number in range(3_000)])
        brokers = ("broker-a", "broker-b")
        assert Counter(result.queue for result in results) == Counter(
            {MessageQueue(topic, broker, n): 500 for broker in brokers for n in (0, 1, 2)}
        )
        seen: set[bytes] = set()
        done = asyncio.Event()

        async def handle(message) -> None:
            seen.add(message.body)
            if len(seen) == 3_000:
                done.set()

        async with (
            client() as other,
            mq.listen(topic, handle) as one,
            other.listen(topic, handle) as two,
        ):
            await done.wait()
            await until(lambda: len(one.assigned) == len(two.assigned) == 3)
            assert set(one.assigned) | set(two.assigned) == {r.queue for r in results}
        assert await mq.admin.offsets.lag(group, topic) == 0


@pytest.mark.feature("F187", "F189")
async def test_a_message_reaches_a_waiting_consumer_at_once(client, names):
    """A broker holds the pull for longer than this test waits for all messages."""
    topic, _ = names
    received = asyncio.Queue()

    async def handler(message):
        received.put_nowait(message.body)

    settings = {"broker_suspend_max_time_ms": 30_000, "consumer_timeout_ms_when_suspend": 60_000}
    async with client(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, **settings
    ) as mq:
        await mq.admin.topics.create(topic, queues=1)
        async with mq.listen(topic, handler), asyncio.timeout(20):
            for number in range(10):
                await mq.send(topic, b"%d" % number)
                assert await received.get() == b"%d" % number


@pytest.mark.feature("F291", "F292")
async def test_a_topic_is_created_by_its_first_send(client, names):
    topic, _ = names
    async with client() as mq:
        results = [await mq.send(topic, b"x") for _ in range(8)]
        assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
        config = await mq.admin.topics.config(topic)
        assert {one.write_queue_nums for one in config.values()} == {4}


@pytest.mark.feature("F175", "F166", "F165", "F163")
async def test_every_way_to_send(client, names):
    topic, _ = names
    async with client() as mq:
        await mq.admin.topics.create(topic, queues=4)
        batch = await mq.send_batch(topic, [b"1", Message(topic, b"2"), "3"])
        assert [one.offset - batch[0].offset for one in batch] == [0, 1, 2]
        keyed = {(await mq.send(topic, b"k", order_key="o-1")).queue for _ in range(4)}
        assert len(keyed) == 1
        queue = MessageQueue(topic, "broker-b", 1)
        assert (await mq.send(topic, b"q", queue=queue)).queue == queue
        futures = [await mq.send_async(topic, b"a") for _ in range(5)]
        assert len(await asyncio.gather(*futures)) == 5
        await mq.send_oneway(topic, b"o")
        assert (await mq.send(topic, b"w", wait_store_ok=False)).status is SendStatus.SEND_OK
        total = 0
        while total != 3 + 4 + 1 + 5 + 1 + 1:
            stats = await mq.admin.topics.stats(topic)
            total = sum(one.max_offset for one in stats.values())


@pytest.mark.feature("F171", "F172", "F378")
async def test_large_and_empty_bodies(client, names):
    topic, _ = names
    large = b"flight " * 500_000
    inbox = Inbox(2)
    async with client() as mq:
        await mq.admin.topics.create(topic, queues=1)
        await mq.send(topic, large)
        await mq.send(topic, b"")
        with pytest.raises(MessageIllegal):
            await mq.send(topic, bytes(4 * 1024 * 1024 + 1))
        with pytest.raises(BadRequest):
            await mq.send("no topic!", b"")
        async with mq.listen(topic, inbox.handle):
            await inbox.full.wait()
    assert sorted(map(len, inbox.bodies)) == [0, len(large)]


@pytest.mark.feature("F260", "F261", "F262", "F263")
async def test_messages_are_found_again(client, names):
    topic, _ = names
    async with client() as mq:
        await mq.admin.topics.create(topic, queues=2)
        results = [await mq.send(topic, b"%d" % n, keys=["k", f"k{n}"]) for n in range(6)]
        for number, result in enumerate(results):
            by_id = await mq.admin.messages.by_offset_id(result.offset_message_id)
            assert (by_id.body, by_id.message_id) == (b"%d" % number, result.message_id)
            by_key = await mq.admin.messages.by_unique_key(topic, result.message_id)
            assert by_key.offset == result.offset
            [one] = await mq.admin.messages.by_key(topic, f"k{number}")
            assert one.body == b"%d" % number
        assert len(await mq.admin.messages.by_key(topic, "k")) == 6
        assert await mq.admin.messages.by_key(topic, "k", begin_ms=2**41) == []


@pytest.mark.feature("F267", "F364", "F268")
async def test_a_group_is_moved_back_offline_and_online(client, names):
    topic, group = names
    async with client() as mq:
        await mq.admin.topics.create(topic, queues=2)
        await mq.send_many(topic, [b"%d" % n for n in range(100)])
        first = Inbox(100)
        async with mq.listen(topic, first.handle):
            await first.full.wait()
        assert await mq.admin.offsets.lag(group, topic) == 0
        await mq.admin.offsets.reset(group, topic, 0)
        assert await mq.admin.offsets.lag(group, topic) == 100
        second = Inbox(100)
        async with mq.listen(topic, second.handle):
            await second.full.wait()
            second.wanted, second.full = 200, asyncio.Event()
            await mq.admin.offsets.reset(group, topic, 0)
            await asyncio.wait_for(second.full.wait(), 60)
        assert Counter(second.bodies) == Counter(2 * first.bodies)


@pytest.mark.feature("F004", "F188")
async def test_a_pull_consumer(client, names):
    topic, _ = names
    async with client() as mq:
        await mq.admin.topics.create(topic, queues=1)
        await mq.send_many(topic, [b"%d" % n for n in range(50)])
        consumer = await mq.pull_consumer()
        queues = await consumer.queues(topic)
        result = await consumer.pull(queues[0], 10, count_max=5)
        assert result.status is PullStatus.FOUND
        assert [message.offset for message in result.messages] == list(range(10, 15))
        assert (await consumer.pull(queues[0], 25)).status is PullStatus.NO_NEW_MESSAGE
        assert (await consumer.pull(queues[0], 99)).status is PullStatus.OFFSET_ILLEGAL
        await consumer.assign(queues)
        polled = []
        while messages := await consumer.poll(wait_ms=10):
            polled += [message.body for message in messages]
        assert sorted(polled, key=int) == [b"%d" % n for n in range(50)]
        await consumer.commit()
        assert [await consumer.committed(queue) for queue in queues] == [25, 25]


@pytest.mark.feature("F014", "F190", "F192")
async def test_broadcasting(client, names):
    topic, _ = names
    async with client() as mq:
        await mq.admin.topics.create(topic, queues=2)
        await mq.send_many(topic, [b"%d" % n for n in range(20)])
    settings = {"message_model": MessageModel.BROADCASTING}
    async with client(**settings) as a, client(**settings) as b:
        inboxes = [Inbox(20), Inbox(20)]
        async with a.listen(topic, inboxes[0].handle), b.listen(topic, inboxes[1].handle):
            await asyncio.gather(*(inbox.full.wait() for inbox in inboxes))
    assert all(len(set(inbox.bodies)) == 20 for inbox in inboxes)


async def test_groups_topics_and_brokers_are_administered(client, names):
    topic, group = names
    async with client() as mq:
        await mq.admin.topics.create(topic, queues=3)
        assert topic in await mq.admin.topics.list()
        assert set(await mq.admin.topics.config(topic)) == {"broker-a", "broker-b"}
        await mq.admin.groups.create(group)
        assert group in [one.name for one in await mq.admin.groups.list()]
        async with mq.listen(topic, Inbox(1).handle):
            assert [one.client_id for one in await mq.admin.groups.members(group)] == [mq.client_id]
        assert (await mq.admin.brokers.config("broker-a"))["brokerName"] == "broker-a"
        assert (await mq.admin.cluster.info()).clusters == {
            "DefaultCluster": ("broker-a", "broker-b")
        }
        await mq.admin.topics.delete(topic)
        with pytest.raises(TopicNotFound):
            await mq.admin.topics.route(topic)


def test_the_blocking_client(running, names):
    topic, group = names
    consumer = ConsumerSettings(
        consumer_group=group, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with blocking.Client(running.address, group=group, consumer=consumer) as mq:
        mq.admin.topics.create(topic, queues=2)
        results = mq.send_many(topic, [b"%d" % n for n in range(40)])
        assert len({(one.queue, one.offset) for one in results}) == 40
        seen = []
        with mq.subscribe(topic) as messages:
            for message in messages:
                seen.append(message.body)
                if len(seen) == 40:
                    message.ack()
                    break
        assert mq.admin.offsets.lag(group, topic) == 0
    assert sorted(seen, key=int) == [b"%d" % n for n in range(40)]


@pytest.mark.fault
def test_a_forked_child_gets_connections_of_its_own(running, names):
    topic, _ = names
    with blocking.Client(running.address) as mq:
        mq.admin.topics.create(topic, queues=2)
        mq.send(topic, b"parent")
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            verdict = b"nothing"
            try:
                try:
                    mq.send(topic, b"child")
                except ForkedClient:
                    verdict = b"told"
                with blocking.Client(running.address) as own:
                    own.send(topic, b"child")
                    verdict += b" and sent"
            finally:
                os.write(write_end, verdict)
                os._exit(0)
        os.close(write_end)
        verdict = os.read(read_end, 100)
        os.close(read_end)
        os.waitpid(child, 0)
        assert verdict == b"told and sent"
        assert mq.send(topic, b"parent").status is SendStatus.SEND_OK
        stats = mq.admin.topics.stats(topic)
        assert sum(one.max_offset for one in stats.values()) == 3


def test_nobody_listens_there(unused_port):
    mq = blocking.Client(
        f"tcp://127.0.0.1:{unused_port}", settings=ClientSettings(request_timeout_ms=200)
    )
    with mq, pytest.raises(Unavailable, match=str(unused_port)):
        mq.send("T", b"x")


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]  # taken, so that nobody else listens there meanwhile


@pytest.mark.fault
@pytest.mark.feature("F168", "F176", "F228", "F201")
async def test_a_broker_dies_under_load_and_comes_back(tmp_path: Path):
    settings = ClusterSettings(broker={"flushDiskType": "SYNC_FLUSH"})
    with LocalCluster(tmp_path, settings) as cluster:
        consumer = ConsumerSettings(
            consumer_group="g",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            pull_pause_ms_when_exception=50,
        )
        producer = ProducerSettings(send_timeout_ms=60_000, retry_times_when_send_failed=15)
        async with Client(cluster.address, consumer=consumer, producer=producer) as mq:
            await mq.admin.topics.create("T", queues=2)
            acknowledged: dict[bytes, int] = {}
            consumed: Counter[bytes] = Counter()
            changed = asyncio.Event()

            async def handle(message) -> None:
                consumed[message.body] += 1
                changed.set()

            async def send(first: int) -> None:
                for number in range(first, 400, 8):
                    result = await mq.send("T", b"%d" % number)
                    acknowledged[b"%d" % number] = result.offset

            async with mq.listen("T", handle):
                senders = [asyncio.ensure_future(send(first)) for first in range(8)]
                await until(lambda: len(acknowledged) >= 100)
                cluster.brokers[0].kill()
                await asyncio.to_thread(cluster.start_broker, 0)
                outcomes = await asyncio.gather(*senders, return_exceptions=True)
                assert [one for one in outcomes if one is not None] == []
                while not acknowledged.keys() <= consumed.keys():
                    changed.clear()
                    await asyncio.wait_for(changed.wait(), 30)
            assert len(acknowledged) == 400
            stats = await mq.admin.topics.stats("T")
            stored = sum(one.max_offset for one in stats.values())
            assert stored == 400, "a repeated send is stored once"


@pytest.mark.fault
@pytest.mark.feature("F254", "F288")
def test_an_idle_producer_is_known_again_as_soon_as_it_is_connected_again(tmp_path):
    """Long before its next heartbeat: the broker may have a question about a transaction."""
    with Cluster(tmp_path) as cluster, cluster.client("shop") as mq:
        topic = cluster.create_topic("orders")
        mq.transaction_check(topic)(lambda message: True)
        known = cluster.each()["broker-a"].membership
        cluster.clock.advance(1)
        [before] = known.producers("shop")
        assert cluster.chaos.cut_connections() > 0
        cluster.clock.advance(2)
        [after] = known.producers("shop")
        assert after.peer != before.peer
