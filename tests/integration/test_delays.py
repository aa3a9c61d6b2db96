"""Delayed messages across deaths and restarts of their broker: none early, none lost, none twice.

The broker lives in this process, on a disk in memory, and time is the cluster's. It dies as by kill
-9 while messages are being delivered, is stopped properly while others wait, and once the machine
loses its power. What is lost then was not acknowledged, since the disk is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kourou import Message
from kourou.model.message import StoredMessage
from kourou.model.names import SCHEDULE_TOPIC
from kourou.protocol.record import decode_record
from kourou.testing.cluster import Cluster

LEVELS_MS = (20_000, 40_000, 60_000)
QUEUES = 3
ROOM = {"mappedFileSizeCommitLog": str(64 << 20), "messageDelayLevel": "20s 40s 60s"}


def stored(cluster: Cluster, topic: str) -> Iterator[StoredMessage]:
    view = cluster.each()["broker-a"].view
    for queue_id in view.queue_ids(topic):
        offset, end = view.queue_range(topic, queue_id) or (0, 0)
        while offset < end:
            read = view.read_queue(
                topic,
                queue_id,
                offset,
                max_messages=4_096,
                max_bytes=4 << 20,
                codes=None,
                below=1 << 62,
            )
            yield from map(decode_record, read.records)
            offset = read.next_offset


@pytest.mark.fault
@pytest.mark.feature("F247", "F249", "F250")
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
