"""Static pairs in real processes: a leader, its copy, and what becomes of both.

A broker and a replica of the same name, and one name server that tells the replica where its leader
is. Nothing is waited for by the clock: consumers wait for messages, senders for copies.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterable, Mapping
from pathlib import Path

import pytest

from kourou import (
    Client,
    ClientSettings,
    ConsumerSettings,
    Message,
    MessageQueue,
    ProducerSettings,
    ReceivedMessage,
)
from kourou.errors import Code, Unavailable
from kourou.model.message import SendStatus
from kourou.model.subscription import ConsumeFromWhere
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.messages.sends import SendMessage
from kourou.service.local_cluster import ClusterSettings, LocalCluster, zmq_address
from kourou.service.processes import Child
from kourou.transport.zmq_client import ZmqConnection

SEGMENT = 1 << 20
NAME = "broker-a"
QUEUES = 4
MAY_HOLD, HAS_SUBSCRIPTION = 2, 4
SAME = (
    *("commitlog", "consumequeue", "index"),
    *("config/topics.json", "config/subscriptionGroup.json"),
)
"""What a replica has like its leader, byte for byte."""
QUICK = ClientSettings(
    poll_name_server_interval_ms=100,
    heartbeat_broker_interval_ms=1_000,
    persist_consumer_offset_interval_ms=100,
)
PATIENT = ProducerSettings(send_timeout_ms=30_000, retry_times_when_send_failed=20)
FROM_FIRST = ConsumerSettings(
    consumer_group="readers",
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    pull_batch_size=2,
    pull_threshold_for_queue=2,
)
"""So little is fetched ahead that most of it must come from whoever lives."""


class Pair(LocalCluster):
    """A name server, a leader, and a replica of brokerId 1."""

    __slots__ = ("_replica_keys", "replica")

    def __init__(self, folder: Path, role: str, *, named: bool = False, **leader: str) -> None:
        """`named`: the replica is told where its leader is, and asks nobody."""
        common = {"mappedFileSizeCommitLog": str(SEGMENT), "adminEnable": "false"}
        keys = {**common, "brokerRole": role, "slaveTimeout": "60000", **leader}
        super().__init__(folder, ClusterSettings(broker=keys))
        self._replica_keys = {
            **common,
            "brokerName": NAME,
            "brokerIP1": "127.0.0.1",
            "listenPort": "0",
            "storePathRootDir": str(self.replica_store),
        }
        if named:
            at = str(self.leader.ready["replication"])
            self._replica_keys["haMasterAddress"] = at.removeprefix("tcp://")
        try:
            self.start_replica()
        except BaseException:
            self.stop()
            raise

    @property
    def leader(self) -> Child:
        return self.brokers[0]

    @property
    def leader_store(self) -> Path:
        return self.store_folder(0)

    @property
    def replica_store(self) -> Path:
        return self.folder / "store-replica"

    def start_replica(self) -> None:
        """Start it, or start it again, on its store."""
        conf = self._write("replica", self._replica_keys)
        self.replica = self.children.start_module(
            "replica", "kourou_ha_replica", "-c", str(conf), "-n", self.address
        )
        self.replica.wait_for_ready()

    def client(self) -> Client:
        return Client(self.address, settings=QUICK, producer=PATIENT, consumer=FROM_FIRST)


async def in_sync(mq: Client, topic: str) -> None:
    """Send until a send is answered when the replica has it.

    The client asks for routes ten times a second, and may not know yet that there is a leader.
    """
    sent = None
    while sent is not SendStatus.SEND_OK:
        try:
            sent = (await mq.send(topic, b"who copies?")).status
        except Unavailable:
            await mq.admin.cluster.info()


async def held_by(replica: Child, topic: str, read: Mapping[tuple[int, int], bytes]) -> None:
    """Wait until the replica itself hands out the last message of each queue: it holds pulls."""
    last = {queue_id: (offset, body) for (queue_id, offset), body in sorted(read.items())}
    connection = ZmqConnection(zmq_address(replica).removeprefix("tcp://"))
    try:
        for queue_id, (offset, body) in last.items():
            asked = PullMessage(
                consumer_group="looking", topic=topic, queue_id=queue_id, queue_offset=offset,
                max_msg_nums=1, sys_flag=MAY_HOLD | HAS_SUBSCRIPTION, subscription="*",
                suspend_timeout_millis=10_000,
            )  # fmt: skip
            # Refused at first: the topic comes with the leader's bytes, too.
            found = b""
            while body not in found:
                found = b"".join((await connection.request(asked, timeout_ms=30_000)).body)
    finally:
        connection.close()


def log_of(store: Path) -> bytes:
    """All segments, without the zeros that nothing was written to."""
    files = sorted((store / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


def queues_of(store: Path) -> dict[str, bytes]:
    root = store / "consumequeue"
    return {
        str(path.relative_to(root)): path.read_bytes().rstrip(b"\0")
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def is_beginning(copy: Path, of: Path) -> None:
    """Everything that the copy has is its leader's, byte for byte, at the same place."""
    ours, theirs = log_of(copy), log_of(of)
    assert theirs.startswith(ours)
    known = queues_of(of)
    for name, units in queues_of(copy).items():
        assert known[name].startswith(units), name


async def mixed(mq: Client) -> int:
    """500 sends of many kinds; how many messages of the topic `mixed` come of them."""
    mq.transaction_check("mixed")(lambda _message: None)
    singles = [mq.send("mixed", b"single-%d" % number) for number in range(300)]
    big = [mq.send("mixed", b"big-%d" % number + bytes(range(256)) * 800) for number in range(20)]
    later = [mq.send("mixed", b"later-%d" % number, delay_level=1) for number in range(60)]
    await asyncio.gather(*singles, *big, *later)
    for batch in range(8):
        await mq.send_many([Message("mixed", b"batch-%d-%d" % (batch, at)) for at in range(10)])
    for number in range(40):
        async with mq.transaction("mixed", b"transaction-%d" % number) as tx:
            if number % 2:
                tx.rollback()
    return 300 + 20 + 60 + 80 + 20


async def read_all(mq: Client, topic: str, count: int) -> dict[tuple[int, int], bytes]:
    """So many messages of a topic, from the beginning, by (queue, offset)."""
    found: dict[tuple[int, int], bytes] = {}
    puller = await mq.pull_consumer("looking")
    try:
        queues = await puller.queues(topic)
        offsets = dict.fromkeys(queues, 0)
        while len(found) < count:
            for queue in queues:
                pulled = await puller.pull(queue, offsets[queue], count_max=1_000, wait_ms=100)
                offsets[queue] = pulled.next_offset
                found.update({(queue.queue_id, one.offset): one.body for one in pulled.messages})
    finally:
        await puller.close()
    return found


@pytest.mark.feature("F128", "F129", "F130", "F131", "F132", "F330")
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_a_replica_has_its_leaders_bytes(tmp_path: Path, role: str) -> None:
    """A leader that is told to stop leaves nothing behind: log and projections are the same."""
    with Pair(tmp_path, role) as pair:
        async with pair.client() as mq:
            if role == "SYNC_MASTER":
                await in_sync(mq, "first")
            else:
                await held_by(pair.replica, "first", {(0, 0): await first(mq)})
            count = await mixed(mq)
            read = await read_all(mq, "mixed", count)
        assert pair.leader.stop() == 0
        async with pair.client() as mq:
            assert await read_all(mq, "mixed", count) == read, "the replica has it all"
        assert pair.replica.stop() == 0
        for name in SAME:
            assert files_of(pair.replica_store / name) == files_of(pair.leader_store / name)


async def first(mq: Client) -> bytes:
    """Send one message to queue 0; a replica that has it is attached."""
    await mq.send("first", b"the first", queue=MessageQueue("first", NAME, 0))
    return b"the first"


def files_of(place: Path) -> dict[str, bytes]:
    """A file, or all files of a folder: name -> content."""
    found = [place] if place.is_file() else sorted(place.rglob("*"))
    assert found
    return {str(path.relative_to(place)): path.read_bytes() for path in found if path.is_file()}


class Reader:
    """One life of a consumer. A message counts as consumed when it asks for the next one."""

    def __init__(self, stream: AsyncIterable[ReceivedMessage]) -> None:
        self._messages = aiter(stream)
        self.seen: list[bytes] = []

    async def until_seen(self, numbers: range) -> None:
        wanted = {b"%d" % number for number in numbers}
        while not wanted <= set(self.seen):
            self.seen.append((await anext(self._messages)).body)


@pytest.mark.feature("F027", "F134", "F135")
async def test_consumers_go_on_from_the_replica_and_back(tmp_path: Path) -> None:
    """One life of a consumer; its leader dies under it and comes back."""

    async def send(mq: Client, numbers: range) -> None:
        for number in numbers:
            assert (await mq.send("orders", b"%d" % number)).status is SendStatus.SEND_OK

    with Pair(tmp_path, "SYNC_MASTER") as pair:
        async with pair.client() as mq:
            await in_sync(mq, "first")
            async with mq.subscribe("orders") as stream:
                reader = Reader(stream)
                await send(mq, range(100))
                await reader.until_seen(range(50))
                pair.leader.kill()
                await reader.until_seen(range(100))
                await refused_by(pair.replica)
                pair.start_broker(0)
                await in_sync(mq, "first")
                await send(mq, range(100, 150))
                await reader.until_seen(range(150))
        async with pair.client() as mq, mq.subscribe("orders") as stream:
            await send(mq, range(150, 151))
            again = Reader(stream)
            await again.until_seen(range(150, 151))
            # The progress came back to the leader, too.
            assert set(again.seen) <= {reader.seen[-1], b"150"}


async def refused_by(replica: Child) -> None:
    """A replica stores nothing, and says who does."""
    connection = ZmqConnection(zmq_address(replica).removeprefix("tcp://"))
    request = SendMessage(
        producer_group="p", topic="orders", queue_id=0, born_timestamp=1,
        default_topic="TBW102", default_topic_queue_nums=4,
    )  # fmt: skip
    reply = await connection.request(request, body=(b"x",), timeout_ms=30_000)
    connection.close()
    assert reply.code == Code.SERVICE_NOT_AVAILABLE
    assert f"a follower of {NAME} at 127.0.0.1:" in reply.remark


@pytest.mark.feature("F113", "F129", "F133", "F141", "F167")
async def test_senders_wait_for_a_copy_and_are_told_while_there_is_none(tmp_path: Path) -> None:
    """The replica stands still, then dies without a word, and comes back on the same store.

    While it stands still, its leader answers other requests, and no send.
    """
    queue = MessageQueue("orders", NAME, 0)
    with Pair(tmp_path, "SYNC_MASTER", named=True) as pair:
        async with pair.client() as mq:
            await in_sync(mq, "orders")
            puller = await mq.pull_consumer("looking")
            pair.replica.signal(signal.SIGSTOP)
            stopped = os.WSTOPPED | os.WNOWAIT
            await asyncio.to_thread(os.waitid, os.P_PID, pair.replica.pid, stopped)
            try:
                sending = asyncio.ensure_future(mq.send("orders", b"copied", queue=queue))
                for _ in range(20):
                    await puller.min_offset(queue)
                assert not sending.done()
            finally:
                pair.replica.signal(signal.SIGCONT)
            assert (await sending).status is SendStatus.SEND_OK
            await puller.close()
            pair.replica.kill()
            alone = [(await mq.send("orders", b"alone-%d" % number)).status for number in range(20)]
            assert SendStatus.SEND_OK not in alone[1:]
            assert alone[-1] is SendStatus.SLAVE_NOT_AVAILABLE
            assert "acknowledgements wait for the replicas none" in pair.leader.log_tail(200)
            pair.start_replica()
            await in_sync(mq, "orders")
            last = await mq.send("orders", b"copied again")
            assert last.status is SendStatus.SEND_OK
        pair.leader.kill()
        pair.replica.stop()
        is_beginning(pair.replica_store, pair.leader_store)
        assert b"copied again" in log_of(pair.replica_store)
        assert b"alone-19" in log_of(pair.replica_store)


@pytest.mark.feature("F130")
async def test_a_tail_that_the_leader_lost_is_cut_and_kept_aside(tmp_path: Path) -> None:
    """The leader's machine loses its power, and with it what was copied but not flushed."""
    timers = ("IntervalCommitLog", "CommitLogThoroughInterval", "IntervalConsumeQueue",
              "ConsumeQueueThoroughInterval")  # fmt: skip
    rests = {f"flush{name}": "3600000" for name in timers}
    with Pair(tmp_path, "ASYNC_MASTER", **rests) as pair:
        async with pair.client() as mq:
            await mq.send("orders", b"kept")
            read = await read_all(mq, "orders", 1)
            await held_by(pair.replica, "orders", read)
            common = len(log_of(pair.leader_store))
            for number in range(20):
                await mq.send("orders", b"lost-%d" % number)
            read = await read_all(mq, "orders", 21)
        await held_by(pair.replica, "orders", read)
        pair.leader.kill()
        lose_power(pair.leader_store, common)
        pair.start_broker(0)
        async with pair.client() as mq:
            await mq.send("orders", b"after that")
            read = await read_all(mq, "orders", 2)
            assert sorted(read.values()) == [b"after that", b"kept"]
        await held_by(pair.replica, "orders", read)
        pair.leader.kill()
        assert pair.replica.stop() == 0
        is_beginning(pair.replica_store, pair.leader_store)
        (aside,) = (pair.replica_store / "kourou" / "diverged").iterdir()
        assert b"lost-19" in aside.read_bytes()
        assert b"lost-" not in log_of(pair.replica_store)


def lose_power(store: Path, end: int) -> None:
    """Take from the log all from `end` on, which was never flushed."""
    for path in sorted((store / "commitlog").iterdir()):
        start = int(path.name)
        with path.open("r+b") as file:
            file.seek(max(0, end - start))
            file.write(bytes(max(0, SEGMENT - max(0, end - start))))
