"""Delayed messages across deaths and restarts of their broker: none early, none lost, none twice.

In the first test the broker lives in this process, on a disk in memory, and time is the cluster's.
It dies as by kill -9 while messages are being delivered, is stopped properly while others wait, and
once the machine loses its power. What is lost then was not acknowledged, since the disk is waited
for. In the second it is a process, the disk is real, and so is kill -9.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou import Client, ClientSettings, Message
from kourou.errors import KourouError
from kourou.model.names import SCHEDULE_TOPIC
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.testing.cluster import Cluster
from kourou_rigs.reading import read_topic, stored

LEVELS_MS = (20_000, 40_000, 60_000)
QUEUES = 3
ROOM = {"mappedFileSizeCommitLog": str(64 << 20), "messageDelayLevel": "20s 40s 60s"}


@pytest.mark.fault
@pytest.mark.feature("F247", "F249", "F250", "F251")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_two_restarts_and_a_kill(
    kourou_cluster: Callable[..., Cluster], rounds: Callable[[int], int], flush: str
) -> None:
    thousands = rounds(100 if flush == "ASYNC_FLUSH" else 10)
    cluster = kourou_cluster(brokers=1, settings={**ROOM, "flushDiskType": flush})
    topic = cluster.create_topic("later", queues=QUEUES)
    chaos, clock = cluster.chaos, cluster.clock
    sent: set[str] = set()
    with cluster.client() as mq:
        for part in range(thousands):
            messages = [
                Message(topic, b"%d" % n, delay_level=1 + n % 3) for n in range(part, part + 1_000)
            ]
            sent.update(result.message_id for result in mq.send_many(messages))
    clock.advance(20.1)
    chaos.kill()
    chaos.restart()
    clock.advance(10)
    cluster._thread.run(cluster.members[0].stop())
    chaos.restart()
    clock.advance(10)
    if flush == "SYNC_FLUSH":
        chaos.power_loss()
        chaos.restart()
    clock.advance(40)
    waited = {one.message_id: one for one in stored(cluster, SCHEDULE_TOPIC)}
    assert waited.keys() == sent
    came: set[str] = set()
    for one in stored(cluster, topic):
        assert one.message_id not in came, "twice"
        came.add(one.message_id)
        was = waited[one.message_id]
        assert one.store_timestamp - was.store_timestamp >= LEVELS_MS[was.queue_id], "early"
    assert came == sent


@pytest.mark.fault
@pytest.mark.feature("F247", "F249", "F250", "F251")
def test_power_is_lost_amid_deliveries(
    kourou_cluster: Callable[..., Cluster], rounds: Callable[[int], int]
) -> None:
    """What a power loss leaves of an append of 512 deliveries is delivered once, and so is the
    rest."""
    for seed in range(rounds(30)):
        chance = random.Random(seed)
        cluster = kourou_cluster(brokers=1, settings={**ROOM, "flushDiskType": "SYNC_FLUSH"})
        topic = cluster.create_topic("later", queues=QUEUES)
        with cluster.client() as mq:
            messages = [Message(topic, b"%d" % n, delay_level=1 + n % 3) for n in range(6_000)]
            sent = {result.message_id for result in mq.send_many(messages)}
        cluster.clock.advance(19)
        for _ in range(3):
            cluster.clock.advance(chance.choice((0.05, 1.05, 10.1, 20.05)))
            cluster.chaos.power_loss()
            cluster.chaos.restart()
        cluster.clock.advance(60)
        came = [one.message_id for one in stored(cluster, topic)]
        assert len(came) == len(set(came)), f"twice, seed {seed}"
        assert set(came) == sent, f"lost, seed {seed}"


async def delivered(mq: Client, topic: str, count: int) -> None:
    """Wait until so many messages were delivered."""
    reader = await mq.pull_consumer("counting")
    found = -1
    while found < count:
        try:
            found = sum([await reader.max_offset(queue) for queue in await reader.queues(topic)])
        except KourouError:  # the route to a broker that was just started is still on its way
            found = -1
    await reader.close()


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.feature("F247", "F249", "F250")
async def test_a_process_is_killed_while_it_delivers_and_stopped_while_others_wait(
    tmp_path: Path, rounds: Callable[[int], int]
) -> None:
    count, levels_ms = rounds(100) * 1_000, (2_000, 4_000, 7_000)
    broker = {"messageDelayLevel": "2s 4s 7s", "mappedFileSizeCommitLog": str(64 << 20)}
    quick = ClientSettings(poll_name_server_interval_ms=100)
    with LocalCluster(tmp_path, ClusterSettings(broker=broker)) as cluster:
        async with Client(cluster.address, settings=quick) as mq:
            await mq.admin.topics.create("later", queues=QUEUES)
            sent: set[str] = set()
            for first in range(0, count, 1_000):
                messages = [
                    Message("later", b"%d" % n, delay_level=1 + n % 3)
                    for n in range(first, first + 1_000)
                ]
                sent.update(result.message_id for result in await mq.send_many(messages))
            await delivered(mq, "later", 1)
            cluster.brokers[0].kill()
            cluster.start_broker(0)
            await delivered(mq, "later", count // 3 + 1)
            cluster.brokers[0].stop()
            cluster.start_broker(0)
            await delivered(mq, "later", count)
            waited = {
                one.message_id: one for one in (await read_topic(mq, SCHEDULE_TOPIC, "r")).values()
            }
            came = list((await read_topic(mq, "later", "r")).values())
    assert waited.keys() == sent
    assert len(came) == len(sent), "none twice"
    assert {one.message_id for one in came} == sent
    for one in came:
        was = waited[one.message_id]
        assert one.store_timestamp - was.store_timestamp >= levels_ms[was.queue_id], "early"
