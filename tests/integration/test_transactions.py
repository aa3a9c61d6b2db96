"""Producers and brokers die around both phases of a transaction, in real processes.

A producer process books orders: it opens a transaction, writes the order's outcome into a table of
its own (a file, flushed), and ends the block. It is killed at random, and so is the broker; another
member of its group answers from the same table. At the end: every order that the table has as
booked was delivered, exactly once; none that it has as cancelled, and none that it does not have.

A second test does the same with power losses of the broker, which take what was not flushed.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kourou import Client, ClientSettings, MessageQueue, ProducerSettings, ReceivedMessage
from kourou.errors import KourouError, TopicNotFound, Unavailable, UnknownOutcome
from kourou.model.names import HALF_TOPIC
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.testing.cluster import Cluster
from kourou_rigs.failing_broker import MODULE, arguments_of
from kourou_rigs.failing_disk import Faults
from kourou_rigs.reading import read_topic, stored

TOPIC = "booked"
FENCE = "fence"
QUICK = ClientSettings(poll_name_server_interval_ms=100, heartbeat_broker_interval_ms=1_000)
BROKER = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(1 << 20),
    "transactionTimeOut": "200",
    "transactionCheckInterval": "250",
    "transactionCheckMax": "1000000",
}

PRODUCER = """
import asyncio, os, random, sys

from kourou import Client, ClientSettings, ProducerSettings
from kourou.errors import KourouError

address, table, seed = sys.argv[1:]
chance = random.Random(int(seed))


async def one(mq, file, number):
    try:
        async with mq.transaction("booked", b"%s-%d" % (seed.encode(), number)) as tx:
            await asyncio.sleep(chance.random() / 50)
            booked = chance.random() < 0.7
            file.write(f"{tx.id} {seed}-{number} {'booked' if booked else 'cancelled'}\\n")
            file.flush()
            os.fsync(file.fileno())
            if not booked:
                tx.rollback()
    except KourouError:
        pass  # nothing was begun, or the broker is down: it will ask


async def work(mq, file, worker):
    for number in range(worker, 1_000_000, 8):
        await one(mq, file, number)
        print(number, flush=True)


async def main():
    settings = ClientSettings(poll_name_server_interval_ms=100)
    producer = ProducerSettings(producer_group="shop", send_timeout_ms=2_000)
    async with Client(address, settings=settings, producer=producer) as mq:
        mq.transaction_check("booked")(lambda message: None)
        with open(table, "a") as file:
            await asyncio.gather(*(work(mq, file, worker) for worker in range(8)))


asyncio.run(main())
"""


def outcomes(table: Path) -> dict[str, tuple[str, bool]]:
    """Transaction id -> (order, booked?); a last line that was cut counts for nothing."""
    found: dict[str, tuple[str, bool]] = {}
    if table.exists():
        for line in table.read_text().split("\n")[:-1]:
            key, order, outcome = line.split(" ")
            found[key] = (order, outcome == "booked")
    return found


def start_producer(address: str, table: Path, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRODUCER, address, str(table), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
    )


class Member:
    """Another member of the producers' group, which answers from their table."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.gone: set[bytes] = set()
        self.answers: Counter[bool | None] = Counter()

    def check(self, message: ReceivedMessage) -> bool | None:
        """What the table says; what a producer that is gone has not written it never will."""
        gone = message.raw_body.split(b"-")[0] in self.gone  # asked first: then it wrote no more
        known = outcomes(self.table).get(message.message_id)
        answer = known[1] if known is not None else False if gone else None
        self.answers[answer] += 1
        return answer


async def one_round(
    cluster: LocalCluster, member: Member, number: int, chance: random.Random
) -> None:
    """A producer at work; its death, and in two rounds of three the broker's before."""
    way = number % 3
    if way == 2:  # the broker dies by itself, between a flush and the answers behind it
        cluster.brokers[0].stop()
        dying = arguments_of(Faults(die_after_sync=chance.randrange(6, 30)))
        settings = ("-c", str(cluster.folder / "broker-a.conf"), "-n", cluster.address)
        child = cluster.children.start_module("broker-a", MODULE, *dying, *settings)
        child.wait_for_ready()
        cluster.brokers[:] = [child]
    producer = start_producer(cluster.address, member.table, number)
    assert producer.stdout is not None
    try:
        if way == 2:
            assert await asyncio.to_thread(cluster.brokers[0].wait_for_exit, 60) == -9
        else:
            for _ in range(chance.randint(8, 60)):
                assert await asyncio.to_thread(producer.stdout.readline)
        if way == 1:
            cluster.brokers[0].kill()
    finally:
        producer.kill()
        producer.wait()
        producer.stdout.close()
    member.gone.add(b"%d" % number)
    if way:
        await asyncio.to_thread(cluster.start_broker, 0)


async def all_are_done(mq: Client, pass_time: Callable[[], Awaitable[None]] | None = None) -> None:
    """Wait until the broker's own group has come to the end of the half messages.

    The end that readers are told is the confirmed one. A message that is sent and flushed meanwhile
    makes sure that it is not behind the progress, which counts what was put back a moment ago.
    """
    progress = await mq.pull_consumer("CID_RMQ_SYS_TRANS")
    queue = MessageQueue(HALF_TOPIC, "broker-a", 0)
    done, end = -1, 0
    while done != end:
        if pass_time is not None:
            await pass_time()
        try:
            # In this order: putting back lets progress pass what was the end a moment ago.
            done = await progress.committed(queue) or 0
            await mq.send(FENCE, b"")
            end = await progress.max_offset(queue)
        except (Unavailable, UnknownOutcome, TopicNotFound):
            done = -1  # the route to a broker that was just started is still on its way


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.feature("F252", "F254", "F259", "F006")
async def test_what_the_table_says_is_delivered_once_and_nothing_else(
    tmp_path: Path, rounds: Callable[[int], int]
) -> None:
    count, chance = rounds(30), random.Random(20_131_231)
    member = Member(tmp_path / "orders.txt")
    with LocalCluster(tmp_path, ClusterSettings(broker=BROKER)) as cluster:
        shop = ProducerSettings(producer_group="shop")
        async with Client(cluster.address, settings=QUICK, producer=shop) as mq:
            await mq.admin.topics.create(TOPIC, queues=2)
            await mq.admin.topics.create(FENCE, queues=1)
            mq.transaction_check(TOPIC)(member.check)
            for number in range(count):
                await one_round(cluster, member, number, chance)
            async with asyncio.timeout(120):
                await all_are_done(mq)
            read = await read_topic(mq, TOPIC, "reader")
    delivered = Counter(one.raw_body.decode() for one in read.values())
    told = outcomes(member.table)
    booked = Counter(order for order, good in told.values() if good)
    assert delivered == booked
    assert booked
    assert member.answers[False] + member.answers[True] > 0, "nobody was ever asked"


class Shop:
    """A producer whose orders are booked in a dict, which outlives power losses of the broker."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.booked: dict[str, bool] = {}
        self.ended = asyncio.Semaphore(0)
        self.is_open = self.is_busy = False

    async def take_orders(self, mq: Client) -> None:
        """One order after the other, until the shop closes."""
        while self.is_open:
            with suppress(KourouError):  # nothing was begun, or the broker will ask
                async with mq.transaction(TOPIC, b"an order") as tx:
                    self.booked[tx.id] = self.chance.random() < 0.8
                    if not self.booked[tx.id]:
                        tx.rollback()
                    for _ in range(self.chance.randrange(9)):
                        await asyncio.sleep(0)
            self.ended.release()

    def check(self, message: ReceivedMessage) -> bool | None:
        """What is booked; what is not, after the last order has ended, never will be."""
        return self.booked.get(message.message_id, None if self.is_busy else False)

    async def live(self) -> None:
        """Orders, three power losses amid them, and the check-backs of what is open then."""
        cluster = self.cluster
        settings = ProducerSettings(producer_group="shop", retry_times_when_send_failed=0)
        async with cluster.async_client(producer=settings, settings=QUICK) as mq:
            mq.transaction_check(TOPIC)(self.check)
            for _ in range(3):
                self.is_open = self.is_busy = True
                orders = [asyncio.create_task(self.take_orders(mq)) for _ in range(32)]
                for _ in range(self.chance.randrange(400)):
                    await self.ended.acquire()
                await asyncio.to_thread(cluster.chaos.power_loss)
                self.is_open = False
                await asyncio.to_thread(cluster.chaos.restart)
                await asyncio.to_thread(cluster.clock.advance, 10)
                await asyncio.gather(*orders)
                self.is_busy = False
            await all_are_done(mq, lambda: asyncio.to_thread(cluster.clock.advance, 1))


@pytest.mark.fault
@pytest.mark.feature("F252", "F254", "F259")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_power_is_lost_amid_transactions(
    kourou_cluster: Callable[..., Cluster], rounds: Callable[[int], int], flush: str
) -> None:
    """No end is left without its message, and no message without its end."""
    for seed in range(rounds(60)):
        settings = {**BROKER, "flushDiskType": flush}
        cluster = await asyncio.to_thread(kourou_cluster, brokers=1, settings=settings)
        await asyncio.to_thread(cluster.create_topic, TOPIC, queues=3)
        await asyncio.to_thread(cluster.create_topic, FENCE, queues=1)
        shop = Shop(cluster, seed)
        await shop.live()
        found = [one.message_id for one in stored(cluster, TOPIC)]
        assert len(found) == len(set(found)), f"twice, seed {seed}"
        begun = {one.message_id for one in stored(cluster, HALF_TOPIC)}
        booked = {key for key, good in shop.booked.items() if good}
        assert set(found) == booked & begun, f"seed {seed}"
        assert flush == "ASYNC_FLUSH" or booked <= begun, f"seed {seed}"
