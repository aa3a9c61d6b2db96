"""Sends to real broker cores with SYNC_FLUSH, whose disk the test holds back.

The client, its frames and the cores are the real ones; only sockets and files are left out.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kourou import Client, ProducerSettings, SendResult, SendStatus
from kourou.errors import Rejected
from kourou_rigs.wire_cluster import WireCluster
from kourou_rigs.wire_core import CoreBroker

PATIENCE_S = 20.0
FLUSH_TIMEOUT_MS = 5_000


class Flushing:
    """Brokers, of which the first flushes for its senders when the test says so."""

    def __init__(self, *names: str) -> None:
        self.cluster = WireCluster()
        self.cluster.topics |= {"T": (1, 1), "U": (1, 1)}
        self.brokers: list[Any] = [self.cluster.broker(name) for name in names]
        self.brokers[0].hold_flushes()

    def client(self, **settings: str) -> Client:
        producer = ProducerSettings.from_rocketmq(producerGroup="p", **settings)
        return Client("127.0.0.1:9876", producer=producer, dial=self.cluster.dial)

    async def stored(self, count: int) -> None:
        """Wait until so many messages are stored."""
        async with asyncio.timeout(PATIENCE_S):
            while sum(len(one.stored("T")) for one in self.brokers) < count:  # noqa: ASYNC110 - a list has no event to wait for
                await asyncio.sleep(0)


@pytest.mark.feature("F173")
async def test_every_field_of_a_message_and_whether_it_waits_for_the_disk() -> None:
    made = Flushing("broker-a")
    [broker] = made.brokers
    async with made.client() as mq:
        fields = {"tag": "paid", "keys": ("k1", "k2"), "flag": 7, "properties": {"region": "eu"}}
        quick = await mq.send("T", b"quick", wait_store_ok=False, **fields)
        assert quick.status is SendStatus.SEND_OK
        assert broker.engine.core.parts.confirmations.flushed <= broker.stored("T")[0].position
        waiting = asyncio.ensure_future(mq.send("T", b"safe", wait_store_ok=True, **fields))
        await made.stored(2)
        await mq.send("T", b"its answer comes behind the other's", wait_store_ok=False)
        assert not waiting.done(), "the answer waits for the flush"
        await mq._client.io.run(_flush(broker))
        assert (await waiting).status is SendStatus.SEND_OK
        delayed = await mq.send("T", b"later", delay_level=3, wait_store_ok=False)
        assert delayed.status is SendStatus.SEND_OK
    for message, body in zip(broker.stored("T"), (b"quick", b"safe"), strict=False):
        assert (message.topic, message.body, message.tag) == ("T", body, "paid")
        assert (message.keys, message.flag) == (("k1", "k2"), 7)
        assert message.properties["region"] == "eu"
    [later] = broker.stored("SCHEDULE_TOPIC_XXXX")
    assert (later.body, later.queue_id) == (b"later", 2)


@pytest.mark.feature("F169", "F295", "F184")
@pytest.mark.parametrize("resend", ["true", "false"])
async def test_a_message_that_is_not_on_disk_in_time_is_sent_elsewhere(resend: str) -> None:
    """broker-a's disk hangs, that of broker-b works."""
    made = Flushing("broker-a", "broker-b")
    hung, works = made.brokers
    statuses = set()
    async with made.client(retryAnotherBrokerWhenNotStoreOK=resend) as mq:
        for _ in range(2):  # one for each broker
            before = len(hung.stored("T"))
            sending = asyncio.ensure_future(mq.send("T", b"x"))
            async with asyncio.timeout(PATIENCE_S):
                while not sending.done():
                    if len(hung.stored("T")) > before:
                        await mq._client.io.run(_pass(hung, FLUSH_TIMEOUT_MS + 1))
                    await asyncio.sleep(0)
            statuses.add((await sending).status)
    assert len(hung.stored("T")) == 1, "never there again"
    assert len(works.stored("T")) == (2 if resend == "true" else 1)
    late = {SendStatus.FLUSH_DISK_TIMEOUT} if resend == "false" else set()
    assert statuses == {SendStatus.SEND_OK} | late


@pytest.mark.feature("F164")
async def test_what_a_broker_refuses_raises_and_what_left_with_it_does_not() -> None:
    """The client believes that U can be written to; the last two messages leave in one frame."""
    made = Flushing("broker-a")
    [broker] = made.brokers
    async with made.client(retryTimesWhenSendFailed="0") as mq:
        for topic in ("T", "U"):
            await mq.send(topic, b"0", wait_store_ok=False)
        await mq._client.io.run(_read_only(broker, "U"))
        frames = len(broker.frames)
        outcomes = await asyncio.gather(
            *(mq.send(topic, b"1", wait_store_ok=False) for topic in ("T", "T", "U")),
            return_exceptions=True,
        )
    assert len(broker.frames) == frames + 2
    assert isinstance(outcomes[1], SendResult)
    assert isinstance(outcomes[2], Rejected)
    assert [len(broker.stored(topic)) for topic in ("T", "U")] == [3, 1]


async def _read_only(broker: CoreBroker, topic: str) -> None:
    control = broker.engine.control.topics
    control.table[topic] = replace(control.table[topic], perm=4)


async def _flush(broker: CoreBroker) -> None:
    broker.flush()


async def _pass(broker: CoreBroker, ms: int) -> None:
    broker.pass_time(ms)
