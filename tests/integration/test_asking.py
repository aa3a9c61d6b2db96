"""Questions that go through a broker to a client and back, on real sockets, and what they tell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kourou import ConsumerSettings, ProducerSettings
from kourou.client.admin.messages import TrackKind
from kourou.client.requests.replies import ReplyTimedOut
from kourou.model.subscription import ConsumeFromWhere
from kourou.protocol.record.message_trace import Consumed, ConsumeStarted, Published, TraceKind
from kourou.testing.cluster import Cluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("asking")
    with Cluster(folder, brokers=2, settings={"traceTopicEnable": True}) as running:
        yield running


class Seen:
    """A handler that keeps bodies and lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._more = asyncio.Event()

    async def handle(self, message) -> None:
        self.bodies.append(message.body)
        self._more.set()

    async def until(self, count: int) -> list[bytes]:
        while len(self.bodies) < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 60)
        return self.bodies


async def test_requests_and_replies_over_two_brokers(cluster) -> None:
    topic = cluster.create_topic("questions")

    async def answer(message):
        return None if message.body == b"?" else b"re " + message.body

    async with (
        cluster.async_client("answering") as other,
        other.listen(topic, answer, replies=True),
        cluster.async_client("asking") as mq,
    ):
        replies = await asyncio.gather(*(mq.request(topic, b"%d" % n) for n in range(64)))
        assert [reply.body for reply in replies] == [b"re %d" % n for n in range(64)]
        with pytest.raises(ReplyTimedOut):
            await mq.request(topic, b"?", timeout_ms=2_000)
        groups = await mq.admin.members.all_producers()
        assert mq.client_id in {one.client_id for one in groups["asking"]}
    kept = await _kept(cluster)
    assert kept == 64, "replies are stored as well"


async def _kept(cluster) -> int:
    async with cluster.async_client("reader") as mq:
        stats = await mq.admin.topics.stats("DefaultCluster_REPLY_TOPIC")
    return sum(one.max_offset for one in stats.values())


@pytest.mark.feature("F261", "F265", "F266")
async def test_what_became_of_a_message(cluster) -> None:
    topic = cluster.create_topic("parcels", queues=1)
    seen = Seen()
    consumer = ConsumerSettings(consumer_group="post", message_trace=True, consume_from_where=FIRST)
    producer = ProducerSettings(producer_group="shop", message_trace=True)
    async with cluster.async_client("shop", producer=producer, consumer=consumer) as mq:
        sent = await mq.send(topic, b"a vase", tag="fragile", keys="R-7")
        async with mq.listen(topic, seen.handle) as listener:
            await seen.until(1)
            await listener.commit()
            (message,) = await mq.admin.messages.by_key(topic, "R-7")
            tracks = {one.group: one for one in await mq.admin.messages.tracks(message)}
            assert tracks["post"].kind is TrackKind.CONSUMED

            info = (await mq.admin.members.running_infos("post"))[mq.client_id]
            assert {queue.topic for queue in info.queues} >= {topic}
            assert info.queues[message.queue].commit_offset == 1
            positions = await mq.admin.members.positions("post", topic)
            assert positions[mq.client_id][message.queue] == 1

            result = await mq.admin.members.consume("post", message, mq.client_id)
            assert result.consume_result == "CR_SUCCESS"
            assert await seen.until(2) == [b"a vase", b"a vase"]
            assert await mq.admin.offsets.lag("post", topic) == 0
            spans = await mq.admin.offsets.time_spans("post", topic)
            assert spans[message.queue].delay_time == 0
            look = await mq.admin.messages.units(message.queue, 0, group="post")
            assert [unit.eval for unit in look.units] == [True]
        away = {one.group: one for one in await mq.admin.messages.tracks(message)}["post"]
        assert (away.kind, away.consumed) == (TrackKind.NOT_ONLINE, True)
    async with cluster.async_client("reader") as mq:
        records = await mq.admin.messages.trace(sent.message_id)
    assert [type(one) for one in records if isinstance(one, Published)] == [Published]
    assert sum(isinstance(one, ConsumeStarted) for one in records) == 2, "the second on demand"
    assert sum(isinstance(one, Consumed) for one in records) == 2
    assert {one.group for one in records} == {"shop", "post"}


async def test_the_trace_of_a_transaction(cluster) -> None:
    topic = cluster.create_topic("seats", queues=1)
    producer = ProducerSettings(producer_group="booking", message_trace=True)
    mq = cluster.async_client("booking", producer=producer)

    @mq.transaction_check(topic)
    async def was_it_booked(_message):
        return None

    async with mq, mq.transaction(topic, b"12A") as tx:
        pass
    async with cluster.async_client("reader") as reader:
        sent, ended = await reader.admin.messages.trace(tx.id)
    assert (sent.kind, sent.success) == (TraceKind.HALF, True)
    assert (ended.state, ended.from_check, ended.transaction_id) == ("COMMIT_MESSAGE", False, tx.id)
    assert (ended.topic, ended.store_host) == (topic, sent.store_host)


@pytest.mark.feature("F267", "F364")
async def test_every_kind_of_member_is_moved_forward_and_back(cluster) -> None:
    topic = cluster.create_topic("readings", queues=1)
    async with cluster.async_client("moving") as mq:
        seen = Seen()
        await mq.send_batch(topic, [b"1", b"2", b"3"])
        async with mq.listen(topic, seen.handle, group="pushed") as listener:
            await seen.until(3)
            await listener.commit()
            await mq.admin.offsets.reset("pushed", topic, 0)
            assert await seen.until(6) == [b"1", b"2", b"3"] * 2
            await mq.admin.offsets.reset("pushed", topic, -1)
            await mq.send(topic, b"4")
            assert (await seen.until(7))[6:] == [b"4"]

        consumer = await mq.pull_consumer("pulled")
        queue = seen_in(await mq.admin.topics.stats(topic))
        await consumer.assign([queue])
        everything = await consumer.poll(count_max=9, wait_ms=5_000)
        await consumer.commit()

        async def moved(timestamp_ms: int) -> None:
            await mq.admin.offsets.reset("pulled", topic, timestamp_ms)
            # The notice came over the same connection before the answer to another question.
            await mq.admin.offsets.lag("pulled", topic)

        await moved(0)
        (again,) = await consumer.poll(count_max=1, wait_ms=5_000)
        assert (again.offset, again.body) == (0, everything[0].body)
        await moved(-1)
        assert await consumer.poll(wait_ms=0) == []
        await mq.send(topic, b"5", queue=queue)
        assert [one.body for one in await consumer.poll(wait_ms=5_000)] == [b"5"]


def seen_in(stats):
    """The queue with more than one message."""
    (queue,) = [queue for queue, bounds in stats.items() if bounds.max_offset > 1]
    return queue
