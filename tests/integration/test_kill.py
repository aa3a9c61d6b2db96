"""kill -9 at random times under load: what was acknowledged is there, at its offset, in order,
once.

One broker with SYNC_FLUSH is killed and started again on its store, round after round. Producers
send one message after the other and write down what they were told; after each start everything is
read back and compared with all that was ever written down.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou import Client, MessageQueue, ProducerSettings
from kourou.errors import KourouError
from kourou.model.message import SendStatus
from kourou.service.local_cluster import ClusterSettings, LocalCluster

PRODUCERS = 4
QUEUES = 2


class Books:
    """What producers were told, and what readers have seen."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused: set[bytes] = set()
        self.seen: dict[tuple[int, int], bytes] = {}
        self.kills = 0

    def compare(self, read: dict[tuple[int, int], bytes]) -> None:
        for place, body in self.seen.items():
            assert read.get(place) == body, f"{place} held {body!r} and now {read.get(place)!r}"
        for body, place in self.acknowledged.items():
            assert read.get(place) == body, f"{body!r} was acknowledged at {place} and is not there"
        phantoms = set(read.values()) & self.refused
        assert not phantoms, f"refused and stored all the same: {phantoms}"
        for queue in range(QUEUES):
            offsets = sorted(offset for at, offset in read if at == queue)
            assert offsets == list(range(len(offsets))), "offsets have no gap and none is reused"
            for producer in range(PRODUCERS):
                mine = [
                    int(read[queue, offset].split(b":")[1])
                    for offset in offsets
                    if read[queue, offset].startswith(b"%d:" % producer)
                ]
                assert mine == sorted(mine), "each producer's messages stay in its order"
                assert len(mine) == len(set(mine)), "a repeated send is stored once"
        self.seen = read


async def produce(mq: Client, name: int, numbers: "Numbers", books: Books) -> None:
    """Send until the broker is gone; a failed send's outcome is unknown, and never sent again."""
    queue = MessageQueue("T", "broker-a", name % QUEUES)
    while True:
        body = b"%d:%d" % (name, numbers.next())
        try:
            result = await mq.send("T", body, queue=queue)
        except KourouError:
            return
        if result.status is SendStatus.SEND_OK:
            books.acknowledged[body] = (queue.queue_id, result.offset)
            numbers.counted()


class Numbers:
    """Ever higher numbers for bodies, and a bell that rings after so many acknowledgements."""

    def __init__(self) -> None:
        self._last = 0
        self._left = 0
        self.bell = asyncio.Event()

    def next(self) -> int:
        self._last += 1
        return self._last

    def ring_after(self, count: int) -> None:
        self._left = count
        self.bell.clear()

    def counted(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.bell.set()


async def read_all(address: str) -> dict[tuple[int, int], bytes]:
    read: dict[tuple[int, int], bytes] = {}
    async with Client(address, group="reader") as mq:
        puller = await mq.pull_consumer()
        for queue_id in range(QUEUES):
            queue = MessageQueue("T", "broker-a", queue_id)
            end = await puller.max_offset(queue)
            offset = 0
            while offset < end:
                result = await puller.pull(queue, offset, count_max=4_096)
                for message in result.messages:
                    read[queue_id, message.offset] = bytes(message.body)
                assert result.next_offset > offset, result
                offset = result.next_offset
    return read


@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.feature("F068", "F081", "F094", "F095", "F113", "F178")
async def test_nothing_acknowledged_is_lost(
    tmp_path: Path, rounds: Callable[[int], int], record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(20_131_231)
    books, numbers = Books(), Numbers()
    settings = ClusterSettings(
        broker={
            "flushDiskType": "SYNC_FLUSH",
            "mappedFileSizeCommitLog": str(1 << 20),
            "maxMessageSize": "65536",
        }
    )
    producer = ProducerSettings(send_timeout_ms=5_000, retry_times_when_send_failed=0)
    with LocalCluster(tmp_path, settings) as cluster:
        async with Client(cluster.address, group="p") as mq:
            await mq.admin.topics.create("T", queues=QUEUES)
        for number in range(rounds(100)):
            async with Client(cluster.address, producer=producer) as mq:
                numbers.ring_after(rng.randrange(1, 120))
                producing = [
                    asyncio.create_task(produce(mq, name, numbers, books))
                    for name in range(PRODUCERS)
                ]
                await asyncio.wait_for(numbers.bell.wait(), 30)
                cluster.brokers[0].kill()
                books.kills += 1
                await asyncio.gather(*producing)
            await asyncio.to_thread(cluster.start_broker, 0)
            books.compare(await read_all(cluster.address))
            assert books.kills == number + 1
    record_property("kills", books.kills)
    record_property("acknowledged", len(books.acknowledged))
    record_property("stored", len(books.seen))
    assert len(books.acknowledged) > 10 * books.kills // 4
