"""A leader dies under a producer and a consumer, and another member leads: both go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.client.settings.client_settings import ConsumerSettings, ProducerSettings
from kourou.errors import KourouError
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import MessageQueue
from kourou.service.local_cluster import ClusterSettings, LocalCluster, zmq_address
from kourou.sync import Client

TOPIC, NAME = "orders", "broker-a"
QUEUES = [MessageQueue(TOPIC, NAME, number) for number in range(4)]
PATIENT = ProducerSettings(send_timeout_ms=60_000)
FROM_FIRST = ConsumerSettings(
    consumer_group="readers", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
)
BEFORE, AFTER = 100, 100


SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "adminEnable": "false"}
PAIR = {**SMALL, "brokerRole": "SYNC_MASTER", "slaveTimeout": "60000"}


@pytest.fixture(params=["pair", "group"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A leader with one follower, or a Raft group of three."""
    settings = ClusterSettings(broker=PAIR, replicas=1)
    if request.param == "group":
        settings = ClusterSettings(broker=SMALL, raft=3)
    with LocalCluster(tmp_path, settings) as running:
        yield running


def kill_the_leader(cluster: LocalCluster, mq: Client) -> None:
    """And promote its follower, where nobody is elected."""
    if not cluster.members:
        cluster.brokers[0].kill()
        mq.admin.replicas.promote(NAME, 1)
        return
    leaders = {one.address for one in mq.admin.replicas.of(NAME) if one.view and one.view.leads}
    (leader,) = [
        child for child in cluster.members if zmq_address(child).removeprefix("tcp://") in leaders
    ]
    leader.kill()


class Sender(threading.Thread):
    """Sends numbers to one queue, one after the other, until it is told to stop."""

    def __init__(self, mq: Client, queue: MessageQueue) -> None:
        super().__init__()
        self.mq, self.queue = mq, queue
        self.sent = 0
        self.last: int | None = None
        self.failure: Exception | None = None
        self.moved = threading.Condition()

    def run(self) -> None:
        try:
            while self.last is None or self.sent < self.last:
                self.mq.send(TOPIC, b"%d" % self.sent, queue=self.queue)
                with self.moved:
                    self.sent += 1
                    self.moved.notify_all()
        except KourouError as error:
            with self.moved:
                self.failure = error
                self.moved.notify_all()

    def reach(self, count: int) -> None:
        with self.moved:
            self.moved.wait_for(lambda: self.failure is not None or self.sent >= count)
        if self.failure is not None:
            raise self.failure


class Reader:
    """Keeps what it is given, by queue."""

    def __init__(self) -> None:
        self.bodies: dict[MessageQueue, list[int]] = {queue: [] for queue in QUEUES}
        self.came = threading.Condition()

    def __call__(self, message: object) -> None:
        with self.came:
            self.bodies[message.queue].append(int(message.body))
            self.came.notify_all()

    def reach(self, wanted: dict[MessageQueue, int]) -> None:
        def complete() -> bool:
            return all(len(set(self.bodies[queue])) >= count for queue, count in wanted.items())

        with self.came:
            assert self.came.wait_for(complete, 60), self.bodies


def copied(mq: Client) -> None:
    """Until the follower has what is acknowledged."""
    while mq.send("first", b"who copies?").status.value != "SEND_OK":
        pass


@pytest.mark.fault
@pytest.mark.feature("F135", "F148", "F149", "F168", "F176", "F179", "F230")
def test_the_leader_dies_and_the_next_one_gets_everything_once_and_in_order(
    cluster: LocalCluster,
) -> None:
    reader = Reader()
    with (
        Client(cluster.address, group="writers", producer=PATIENT) as mq,
        Client(cluster.address, consumer=FROM_FIRST) as other,
    ):
        mq.admin.topics.create(TOPIC, queues=len(QUEUES))
        copied(mq)
        senders = [Sender(mq, queue) for queue in QUEUES]
        with other.listen(TOPIC, reader, ordered=True):
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.reach(BEFORE)
            kill_the_leader(cluster, mq)
            for sender in senders:
                sender.last = sender.sent + AFTER
            for sender in senders:
                sender.join()
                assert sender.failure is None, sender.failure
            counts = {sender.queue: sender.sent for sender in senders}
            reader.reach(counts)
        puller = other.pull_consumer("checkers")
        for queue, count in counts.items():
            assert puller.max_offset(queue) == count, "nothing twice, and nothing is missing"
            assert [int(one.body) for one in everything(puller, queue)] == list(range(count))
    for queue, count in counts.items():
        assert reader.bodies[queue] == list(range(count))


def everything(puller: object, queue: MessageQueue) -> list[object]:
    found: list[object] = []
    while len(found) < puller.max_offset(queue):
        found += puller.pull(queue, len(found)).messages
    return found
