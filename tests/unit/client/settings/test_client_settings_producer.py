"""Every setting of a producer does what it says: F290 to F296, under RocketMQ's names, as texts."""

from __future__ import annotations

import os

import pytest

from kourou import Client, ProducerSettings
from kourou.errors import Code, DiskFull, MessageIllegal
from kourou.model.message import SysFlag
from kourou.protocol.messages.sends import SendRecords
from kourou_rigs.wire_faults import Answer, always

EASY = b"flight " * 20


@pytest.fixture
def producer(cluster, tools):
    """Makes clients whose producer has settings as a file has them."""

    def make(**settings) -> Client:
        made = ProducerSettings.from_rocketmq(**settings)
        return Client(tools.NAMESRV, producer=made, dial=cluster.dial)

    return make


@pytest.mark.feature("F290", "F005")
async def test_brokers_know_the_producers_group_until_it_leaves(broker, producer):
    async with producer(producerGroup="billing") as mq:
        await mq.send("T", b"x")
        await mq._client.io.run(mq._client.session.heartbeats.beat())
        assert broker.producers == {"billing"}
        identity = mq.client_id
    assert broker.frames[0].producer_group == "billing"
    assert broker.left == [(identity, "billing")]


@pytest.mark.feature("F291", "F292")
async def test_a_new_topic_copies_another_with_so_many_queues(cluster, broker, producer):
    cluster.topics["TEMPLATE"], cluster.perms["TEMPLATE"] = (16, 16), 7
    async with producer(createTopicKey="TEMPLATE", defaultTopicQueueNums="6") as mq:
        results = [await mq.send("New", b"x") for _ in range(12)]
    first = broker.frames[0]
    assert (first.default_topic, first.default_topic_queue_nums) == ("TEMPLATE", 6)
    assert len({result.queue for result in results}) == 6


@pytest.mark.parametrize("retries", [0, 1, 4])
@pytest.mark.feature("F168")
async def test_so_many_attempts_follow_the_first(broker, producer, retries):
    seen = []
    broker.faults[SendRecords] = always(
        lambda request: seen.append(request.attempt) or Answer(Code.DISK_FULL, remark="full")
    )
    async with producer(retryTimesWhenSendFailed=str(retries)) as mq:
        with pytest.raises(DiskFull):
            await mq.send("T", b"x")
    assert seen == list(range(1, retries + 2))


@pytest.mark.feature("F294")
async def test_bodies_are_compressed_from_this_size_on(broker, producer):
    async with producer(compressMsgBodyOverHowmuch="100") as mq:
        await mq.send("T", EASY[:99])
        await mq.send("T", EASY[:100])
    flags = {len(one.body): one.sys_flag & SysFlag.COMPRESSED for one in broker.stored("T")}
    assert flags == {99: 0, 100: SysFlag.COMPRESSED}


async def test_never_compress_as_users_of_rocketmq_write_it(broker, producer):
    async with producer(compressMsgBodyOverHowmuch=str(2**31 - 1)) as mq:
        await mq.send("T", EASY * 1_000)
    assert not broker.stored("T")[0].sys_flag & SysFlag.COMPRESSED


async def test_a_higher_level_is_smaller(one_queue, producer):
    body = os.urandom(64).hex().encode() * 300 + bytes(range(256)) * 40
    for level in ("0", "1", "9"):
        async with producer(compressLevel=level) as mq:
            await mq.send("T", body)
    sizes = [len(record) for record in one_queue.queues["T", 0]]
    assert sizes[0] > sizes[1] >= sizes[2]
    assert sizes[0] > len(body), "level 0 makes it no smaller, so it travels as it is"


@pytest.mark.feature("F296", "F172")
async def test_bodies_above_this_size_do_not_travel(broker, producer):
    async with producer(maxMessageSize="1000") as mq:
        await mq.send("T", b"x" * 1_000)
        with pytest.raises(MessageIllegal, match="1001 bytes; at most 1000"):
            await mq.send("T", b"x" * 1_001)
        with pytest.raises(MessageIllegal, match="at most 1000"):
            await mq.send("T", EASY * 1_000)
    assert [len(one.body) for one in broker.stored("T")] == [1_000]


@pytest.mark.parametrize(("enabled", "asked"), [("true", {1}), ("false", set(range(9, 21)))])
async def test_failing_brokers_are_avoided(cluster, producer, enabled, asked):
    bad = cluster.broker("broker-a")
    cluster.broker("broker-b")
    cluster.topics["T"] = (1, 1)
    bad.faults[SendRecords] = always(Answer(Code.SERVICE_NOT_AVAILABLE))
    async with producer(sendLatencyFaultEnable=enabled) as mq:
        for _ in range(20):
            await mq.send("T", b"x")
    assert len(bad.requests(SendRecords)) in asked


@pytest.mark.parametrize(
    "bound", [{"pendingCountMax": "2"}, {"unsentSizeBytesMax": str(4 * 1024 * 1024)}]
)
async def test_senders_wait_for_room(broker, producer, bound):
    async with producer(**bound) as mq:
        await mq.send("T", b"x")
        port = next(iter(mq._ports.values()))
        bodies = os.urandom(3 << 20), os.urandom(3 << 20)
        waiting = [await mq.send_async("T", body) for body in bodies]
        assert port.full
        for outcome in waiting:
            await outcome
        assert not port.full
