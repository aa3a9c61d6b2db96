"""kill -9 at random times under load: what was acknowledged is there, at its offset, in order,
once, and nothing is there that was refused.

One broker with SYNC_FLUSH dies and is started again on its store, round after round. Producers
send one message after the other and write down what they were told; after each start everything is
read back and compared with all that was ever written down.

A round is one of three:

    giving up     killed from outside; producers do not try again: what failed may be there or not
    trying again  killed from outside; producers try again until the broker is back
    unanswered    the broker dies by itself between flushing and answering, so producers repeat what
                  is stored already, and must be told the place it has
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from enum import StrEnum
from itertools import cycle, islice
from pathlib import Path

import pytest

from kourou import Client, ClientSettings, MessageQueue, ProducerSettings
from kourou.errors import KourouError, Rejected, Unavailable
from kourou.model.message import SendStatus
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou_rigs.failing_broker import MODULE, arguments_of
from kourou_rigs.failing_disk import Faults
from kourou_rigs.reading import read_topic

PRODUCERS = 4
QUEUES = 2
MESSAGE_BYTES_MAX = 65_536
TOO_MUCH = random.Random(1).randbytes(MESSAGE_BYTES_MAX)  # and nothing that could be compressed
QUICK = ClientSettings(poll_name_server_interval_ms=100)
GIVES_UP = ProducerSettings(send_timeout_ms=5_000, retry_times_when_send_failed=0)
TRIES_AGAIN = ProducerSettings(send_timeout_ms=60_000, retry_times_when_send_failed=20)
BROKER = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxMessageSize": str(MESSAGE_BYTES_MAX),
}


class Way(StrEnum):
    """How the broker of a round dies, and what its producers do about it."""

    GIVING_UP = "giving up"
    TRYING_AGAIN = "trying again"
    UNANSWERED = "unanswered"


IN_TURN = (Way.GIVING_UP, Way.TRYING_AGAIN, Way.GIVING_UP, Way.UNANSWERED)


class Books:
    """What producers were told, and what readers have seen."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused: set[bytes] = set()
        self.in_flight: set[bytes] = set()
        self.repeated: set[bytes] = set()
        self.seen: dict[tuple[int, int], bytes] = {}
        self.kills: Counter[Way] = Counter()

    def died(self, way: Way, log: bytes) -> None:
        """Note the death, and which messages are in its log while nobody was told so."""
        self.kills[way] += 1
        if way is not Way.GIVING_UP:
            self.repeated |= {body for body in self.in_flight if body in log}

    def compare(self, read: dict[tuple[int, int], bytes]) -> None:
        for place, body in self.seen.items():
            assert read.get(place) == body, f"{place} held {body!r} and now {read.get(place)!r}"
        for body, place in self.acknowledged.items():
            assert read.get(place) == body, f"{body!r} was acknowledged at {place} and is not there"
        phantoms = set(read.values()) & self.refused
        assert not phantoms, f"refused and stored all the same: {phantoms}"
        strangers = self.repeated - self.acknowledged.keys()
        assert not strangers, f"stored, sent once more, and not recognised: {strangers}"
        for queue in range(QUEUES):
            offsets = sorted(offset for at, offset in read if at == queue)
            assert offsets == list(range(len(offsets))), "offsets have no gap and none is reused"
        for producer in range(PRODUCERS):
            numbers = [number for name, number in map(parsed, read.values()) if name == producer]
            assert len(numbers) == len(set(numbers)), "a repeated send is stored once"
            for queue in range(QUEUES):
                places = sorted(place for place in read if place[0] == queue)
                mine = [number for name, number in map(parsed, map(read.get, places))
                        if name == producer]  # fmt: skip
                assert mine == sorted(mine), "each producer's messages stay in its order"
        self.seen = read


def parsed(body: bytes | None) -> tuple[int, int]:
    """Who sent it and its number; `[2:17]`, so that no body is a part of another one."""
    assert body is not None
    name, number = body.partition(b"]")[0].strip(b"[").split(b":")
    return int(name), int(number)


class Numbers:
    """Ever higher numbers for bodies, and a bell that rings after so many acknowledgements."""

    def __init__(self) -> None:
        self._last = 0
        self._left = 0
        self.bell = asyncio.Event()
        self.over = False

    def next(self) -> int:
        self._last += 1
        return self._last

    def begin(self, ring_after: int) -> None:
        self._left = ring_after
        self.bell.clear()
        self.over = False

    def counted(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.bell.set()


async def produce(mq: Client, name: int, numbers: Numbers, books: Books, way: Way) -> None:
    """Send until the broker has died, and in most ways until it is back."""
    await send(mq, b"[%d:%d]" % (name, numbers.next()) + TOO_MUCH, name, books)
    while not numbers.over:
        body = b"[%d:%d]" % (name, numbers.next())
        # Who keeps to a queue is never tried again, as with RocketMQ's selectors.
        queue = name % QUEUES if way is Way.GIVING_UP else None
        if await send(mq, body, queue, books):
            numbers.counted()
        elif way is Way.GIVING_UP:
            return
        else:
            raise AssertionError(f"{body!r} was tried again for a minute, in vain")


async def send(mq: Client, body: bytes, queue_id: int | None, books: Books) -> bool:
    """Send one message, write down what is said about it; True if it was acknowledged."""
    queue = None if queue_id is None else MessageQueue("T", "broker-a", queue_id % QUEUES)
    books.in_flight.add(body)
    try:
        result = await mq.send("T", body, queue=queue)
    except (Rejected, Unavailable):  # these, unlike UnknownOutcome, say that it is not stored
        books.refused.add(body)
        return False
    except KourouError:
        return False
    finally:
        books.in_flight.discard(body)
    assert result.status is SendStatus.SEND_OK, result
    books.acknowledged[body] = (result.queue.queue_id, result.offset)
    return True


def start_broker(cluster: LocalCluster, way: Way, rng: random.Random) -> None:
    """Start it on its store; one that is to die unanswered knows after which flush."""
    if way is not Way.UNANSWERED:
        cluster.start_broker(0)
        return
    dying = arguments_of(Faults(die_after_sync=rng.randrange(4, 40)))
    settings = ("-c", str(cluster.folder / "broker-a.conf"), "-n", cluster.address)
    child = cluster.children.start_module("broker-a", MODULE, *dying, *settings)
    child.wait_for_ready()
    cluster.brokers[:] = [child]


async def one_round(
    cluster: LocalCluster, way: Way, books: Books, numbers: Numbers, rng: random.Random
) -> Coroutine[None, None, None]:
    """Load, death, and the next start. Returns what closes the client, which takes its time."""
    producer = GIVES_UP if way is Way.GIVING_UP else TRIES_AGAIN
    mq = await Client(cluster.address, settings=QUICK, producer=producer).open()
    numbers.begin(rng.randrange(1, 120))
    broker = cluster.brokers[0]
    producing = [
        asyncio.create_task(produce(mq, name, numbers, books, way)) for name in range(PRODUCERS)
    ]
    if way is Way.UNANSWERED:
        assert await asyncio.to_thread(broker.wait_for_exit, 60) == -9
    else:
        await asyncio.wait_for(numbers.bell.wait(), 60)
        broker.kill()
    numbers.over = True
    segments = sorted((cluster.store_folder(0) / "commitlog").iterdir())
    books.died(way, b"".join(path.read_bytes() for path in segments))
    if way is Way.GIVING_UP:
        await asyncio.gather(*producing)
    await asyncio.to_thread(cluster.start_broker, 0)
    await asyncio.gather(*producing)
    return mq.close()


@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.feature("F068", "F081", "F094", "F095", "F178")
async def test_nothing_acknowledged_is_lost(
    tmp_path: Path, rounds: Callable[[int], int], record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(20_131_231)
    books, numbers = Books(), Numbers()
    ways = list(islice(cycle(IN_TURN), rounds(100)))
    with LocalCluster(tmp_path, ClusterSettings(broker=BROKER)) as cluster:
        async with Client(cluster.address, group="p") as mq, asyncio.TaskGroup() as closing:
            await mq.admin.topics.create("T", queues=QUEUES)
            for way in ways:
                if way is Way.UNANSWERED:
                    cluster.brokers[0].stop()
                    await asyncio.to_thread(start_broker, cluster, way, rng)
                closing.create_task(await one_round(cluster, way, books, numbers, rng))
                async with Client(cluster.address) as reader:
                    read = await read_topic(reader, "T", "reader")
                    books.compare({place: one.raw_body for place, one in read.items()})
    for name, figure in {
        "kills": {way.value: count for way, count in books.kills.items()},
        "acknowledged": len(books.acknowledged),
        "stored": len(books.seen),
        "refused": len(books.refused),
        "repeated": len(books.repeated),
    }.items():
        record_property(name, figure)
        print(f"{name}: {figure}")  # noqa: T201 - the counts are results of the test
    assert len(books.acknowledged) > 10 * len(ways) // 4
    assert len(books.refused) >= PRODUCERS * len(ways)
    assert len(books.repeated) >= books.kills[Way.UNANSWERED] > 0, "that is what dies unanswered"
