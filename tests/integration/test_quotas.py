"""Quotas at a broker process, over both protocols: who is over one waits, and is then refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou import Client, ProducerSettings
from kourou.errors import Code, Rejected, TopicNotFound, Unavailable, UnknownOutcome
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.quotas import FlowControlled, RemoveQuota, SetQuota
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child, Children
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import WireReply, ZmqConnection
from kourou_rigs.access import send_to

TIMEOUT_MS = 20_000
TOPICS = ("orders", "bills")
PER_S = 20
NO_RETRIES = ProducerSettings(retry_times_when_send_failed=0)


class Broker:
    """One broker process, and a connection of each protocol to it."""

    def __init__(self, child: Child) -> None:
        self.zmq = ZmqConnection(str(child.ready["zmq"]))
        self.tcp = RemotingConnection(str(child.ready["tcp"]))

    async def ask(self, request: SetQuota | RemoveQuota | UpdateAndCreateTopic) -> None:
        reply = await self.zmq.request(request, timeout_ms=TIMEOUT_MS)
        assert reply.code == Code.SUCCESS, reply.remark

    async def by_zmq(self, topic: str) -> WireReply:
        return await self.zmq.request(send_to(topic), body=(b"x",), timeout_ms=TIMEOUT_MS)

    async def by_tcp(self, topic: str) -> RemotingCommand:
        command = RemotingCommand(SendMessage.code, ext_fields=encode_ext_fields(send_to(topic)))
        return await self.tcp.exchange(command, (b"x",), timeout_ms=TIMEOUT_MS)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker whose topic `orders` gets PER_S messages a second."""
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "listenPort=0\nadminEnable=false\nbrokerIP1=127.0.0.1\n"
        f"mappedFileSizeCommitLog={1 << 20}\nstorePathRootDir={tmp_path / 'store'}\n"
    )
    with Children(tmp_path) as children:
        child = children.start_module("broker", "kourou_broker", "-c", str(conf))
        child.wait_for_ready()
        running = Broker(child)
        for name in TOPICS:
            await running.ask(
                UpdateAndCreateTopic(topic=name, read_queue_nums=1, write_queue_nums=1, perm=6)
            )
        await running.ask(SetQuota(kind="topic", name="orders", publish_messages=PER_S))
        try:
            yield running
        finally:
            running.zmq.close()
            running.tcp.close()


async def test_who_waits_for_replies_is_slowed_down_and_never_refused(broker: Broker) -> None:
    for ask in (broker.by_zmq, broker.by_tcp):
        started = time.monotonic()
        for _ in range(2 * PER_S):
            reply = await ask("orders")
            assert reply.code == Code.SUCCESS, reply.remark
        assert time.monotonic() - started >= 0.8, "twice the quota of a second, half of it free"
        await broker.ask(SetQuota(kind="topic", name="orders", publish_messages=PER_S + 1))


async def test_who_does_not_wait_is_refused_with_the_time_to_try_again(broker: Broker) -> None:
    by_tcp = await asyncio.gather(*(broker.by_tcp("orders") for _ in range(5 * PER_S)))
    refused = [one for one in by_tcp if one.code == Code.FLOW_CONTROL]
    assert len(refused) >= 2 * PER_S
    fields = refused[0].ext_fields or {}
    assert int(fields["retryAfterMs"]) > 0
    assert fields["MSG_REGION"] == "DefaultRegion"
    assert f"over its quota of {PER_S} publish messages/s" in (refused[0].remark or "")
    over = await broker.by_zmq("orders")
    if over.code != Code.SUCCESS:
        assert isinstance(over.header, FlowControlled)
    assert (await broker.by_zmq("bills")).code == Code.SUCCESS
    await broker.ask(RemoveQuota(kind="topic", name="orders"))
    replies = await asyncio.gather(*(broker.by_zmq("orders") for _ in range(5 * PER_S)))
    assert {one.code for one in replies} == {Code.SUCCESS}


async def test_stored_bytes_are_counted_again_after_a_kill(tmp_path: Path) -> None:
    """What a topic stores is known from its queues, also to a broker that did not store it."""
    mq_settings = ClusterSettings(broker={"mappedFileSizeCommitLog": str(1 << 20)})
    with LocalCluster(tmp_path, mq_settings) as cluster:
        async with Client(cluster.address, producer=NO_RETRIES) as mq:
            await mq.admin.topics.create("orders", queues=2)
            await mq.admin.quotas.set("topic", "orders", stored_bytes=20_000)
            await until_refused(mq)
            cluster.brokers[0].kill()
            await asyncio.to_thread(cluster.start_broker, 0)
            await until_refused(mq)
            await mq.admin.topics.delete("orders")
            await mq.admin.topics.create("orders", queues=2)
            async with asyncio.timeout(TIMEOUT_MS / 1_000):
                while not await accepts(mq):
                    pass


async def until_refused(mq: Client) -> None:
    """Send until the topic is over its quota."""
    async with asyncio.timeout(TIMEOUT_MS / 1_000):
        while await accepts(mq):
            pass


async def accepts(mq: Client) -> bool:
    """Whether a message is stored; False if the topic is over its quota."""
    try:
        await mq.send("orders", b"x" * 1_000)
    except (Unavailable, TopicNotFound, UnknownOutcome):
        return True  # the broker was killed a moment ago, or the route is not known yet
    except Rejected as error:
        if "the messages of topic orders take" not in str(error):
            raise
        return False
    return True
