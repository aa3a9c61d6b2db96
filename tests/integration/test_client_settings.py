"""Settings of clients at real brokers: what an application sets is what the cluster gets.

A name server and two brokers of `kourou.testing.cluster`: the services themselves, on sockets. Time
is the cluster's own, so that a time-out of hours costs nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kourou import ClientSettings, ConsumerSettings, MessageQueue, ProducerSettings
from kourou.client.settings.client_settings import PullConsumerSettings
from kourou.errors import KourouError, TimedOut, Unavailable
from kourou.protocol.messages.namesrv import PutKvConfig
from kourou.sync import Client
from kourou.testing.cluster import Cluster, unique_name
from kourou.transport.zmq_client import ZmqConnection
from kourou_namesrv.config import NamesrvSettings

BROKERS = 2
QUEUES = 4
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("settings"), brokers=BROKERS) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(queues=QUEUES)


@pytest.fixture
def group() -> str:
    return unique_name("group")


def until(cluster: Cluster, satisfied: Callable[[], bool]) -> None:
    """Wait for what a broker comes to know."""
    assert cluster._thread.run(cluster.until(satisfied, PATIENCE_S), PATIENCE_S + 5)


def producers(cluster: Cluster, broker: str, group: str) -> list[str]:
    """The client ids that a broker knows in a producer group."""
    return [member.client_id for member in cluster.each()[broker].membership.producers(group)]


# -- who a client is ------------------------------------------------------------------------------


@pytest.mark.feature("F005", "F026")
def test_a_producer_group_is_known_at_every_broker_of_its_topics(cluster, topic, group) -> None:
    """Two objects of one process, which send several topics; and each is gone when it closes."""
    other_topic = cluster.create_topic(queues=1)
    with cluster.client(group) as one:
        with cluster.client(group) as other:
            for client in (one, other):
                client.send(topic, b"x")
                client.send(other_topic, b"x")
            ids = {one.client_id, other.client_id}
            assert len(ids) == 2
            for broker in cluster.brokers:
                until(cluster, lambda broker=broker: set(producers(cluster, broker, group)) == ids)
        for broker in cluster.brokers:
            until(
                cluster,
                lambda broker=broker: producers(cluster, broker, group) == [one.client_id],
            )


@pytest.mark.feature("F026")
def test_brokers_know_an_idle_producer_by_its_heartbeats(cluster, topic, group) -> None:
    """Brokers expire a client that sends none for two minutes."""
    with cluster.client(group, settings=ClientSettings()) as mq:
        mq.send(topic, b"x")
        cluster.clock.advance(minutes=10)
        for broker in cluster.brokers:
            assert producers(cluster, broker, group) == [mq.client_id]


@pytest.mark.feature("F212", "F284", "F285")
def test_brokers_know_a_client_by_its_address_and_its_name(cluster, topic, group) -> None:
    settings = ClientSettings.from_rocketmq(clientIP="10.1.2.3", instanceName="IDC1-CID-0")
    with (
        cluster.client(group, settings=settings) as mq,
        mq.listen(topic, lambda message: None),
    ):
        for broker in cluster.brokers:
            membership = cluster.each()[broker].membership
            until(cluster, lambda m=membership: m.consumer_ids(group) == ["10.1.2.3@IDC1-CID-0"])


# -- times ----------------------------------------------------------------------------------------


def outcome_of(call: Callable[[], Any]) -> tuple[threading.Event, list[object]]:
    """A call in a thread of its own: whether it has ended, and with what."""
    ended, outcome = threading.Event(), []

    def run() -> None:
        try:
            outcome.append(call())
        except KourouError as error:
            outcome.append(error)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    return ended, outcome


TIMEOUT_MS = 60_000
"""Longer than PATIENCE_S: a call that ends so much later than it should does not pass."""


def ends_in_time(
    cluster: Cluster, fault: Any, call: Callable[[], Any], halfway: Callable[[], Any] = lambda: None
) -> object:
    """Let a call whose request or reply was lost wait: it ends after TIMEOUT_MS, not before."""
    ended, outcome = outcome_of(call)
    until(cluster, lambda: fault.met == 1)
    cluster.clock.advance(TIMEOUT_MS / 1_000 * 0.5)
    halfway()
    cluster.clock.advance(TIMEOUT_MS / 1_000 * 0.4)
    assert not ended.is_set(), "it ends too early"
    cluster.clock.advance(TIMEOUT_MS / 1_000 * 0.1)
    assert ended.wait(PATIENCE_S), "it does not end"
    return outcome[0]


@pytest.mark.feature("F293")
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_send_with_all_its_attempts_takes_so_long(cluster, group, attempts) -> None:
    """The second attempt, after half of the time, has what is left of it.

    At one broker: the other one's connection is cut as well, perhaps under the second attempt.
    """
    topic = unique_name("topic")
    settings = ProducerSettings.from_rocketmq(
        producerGroup=group,
        sendMsgTimeout=str(TIMEOUT_MS),
        retryTimesWhenSendFailed=str(attempts - 1),
    )
    with cluster.client(group, producer=settings) as mq:
        mq.admin.topics.create(topic, broker="broker-a")
        mq.send(topic, b"connected")
        fault = cluster.chaos.drop_answers("send", times=attempts)

        def halfway() -> None:
            if attempts > 1:
                cluster.chaos.cut_connections()
                until(cluster, lambda: fault.met == attempts)

        error = ends_in_time(cluster, fault, lambda: mq.send(topic, b"x"), halfway)
    assert isinstance(error, TimedOut)


@pytest.mark.parametrize(
    ("wait_ms", "key"),
    [
        pytest.param(
            0, "consumerPullTimeoutMillis", marks=pytest.mark.feature("F319"), id="not held"
        ),
        pytest.param(
            5_000, "consumerTimeoutMillisWhenSuspend", marks=pytest.mark.feature("F318"), id="held"
        ),
    ],
)
def test_a_pull_waits_so_long_for_its_reply(cluster, topic, group, wait_ms, key) -> None:
    """The other kind of pull has twice as long."""
    timeouts = dict.fromkeys(
        ["consumerPullTimeoutMillis", "consumerTimeoutMillisWhenSuspend"], str(2 * TIMEOUT_MS)
    )
    settings = PullConsumerSettings.from_rocketmq(
        consumerGroup=group,
        brokerSuspendMaxTimeMillis="20000",
        **timeouts | {key: str(TIMEOUT_MS)},
    )
    queue = MessageQueue(topic, "broker-a", 0)
    with cluster.client(group) as mq:
        consumer = mq.pull_consumer(settings=settings)
        consumer.pull(queue, 0)
        fault = cluster.chaos.drop_requests("pull")
        error = ends_in_time(cluster, fault, lambda: consumer.pull(queue, 0, wait_ms=wait_ms))
    assert isinstance(error, TimedOut)


@pytest.mark.feature("F287", "F026")
def test_routes_are_asked_for_again_in_this_interval(cluster, topic, group) -> None:
    """A topic grows; a producer that has its route learns it when the interval is over."""
    settings = ClientSettings.from_rocketmq(pollNameServerInterval="7000")
    with cluster.client(group, settings=settings) as mq:
        mq.send(topic, b"x")
        with cluster.client("operator") as operator:
            operator.admin.topics.create(topic, queues=2 * QUEUES)

        def queues() -> int:
            return len({mq.send(topic, b"x").queue for _ in range(4 * QUEUES * BROKERS)})

        assert queues() == QUEUES * BROKERS
        cluster.clock.advance(10)
        assert queues() == 2 * QUEUES * BROKERS


# -- callbacks, shares, pulls ---------------------------------------------------------------------


@pytest.mark.feature("F286", "F165")
def test_so_many_callbacks_run_at_once(cluster, topic, group) -> None:
    settings = ClientSettings.from_rocketmq(clientCallbackExecutorThreads="2")
    started, gate = threading.Semaphore(0), threading.Event()

    def callback(_outcome: object) -> None:
        started.release()
        gate.wait(PATIENCE_S)

    with cluster.client(group, settings=settings) as mq:
        try:
            for number in range(2):
                mq.send_async(topic, b"x", callback)
                assert started.acquire(timeout=PATIENCE_S), f"only {number} run at once"
            mq.send_async(topic, b"x", callback)
            mq.send(topic, b"its answer comes behind the others'")
            assert not started.acquire(blocking=False), "the third waits for a thread"
        finally:
            gate.set()


@pytest.mark.feature("F304", "F203")
@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        ("AllocateMessageQueueAveragely", [[0, 1], [2, 3]]),
        ("AllocateMessageQueueAveragelyByCircle", [[0, 2], [1, 3]]),
    ],
)
def test_queues_are_shared_out_this_way(cluster, group, strategy, shares) -> None:
    topic = unique_name("shared")
    with cluster.client("operator") as operator:
        operator.admin.topics.create(topic, queues=QUEUES, broker="broker-a")
    consumer = ConsumerSettings.from_rocketmq(
        consumerGroup=group, allocateMessageQueueStrategy=strategy
    )
    with (
        cluster.client(group, consumer=consumer) as one,
        cluster.client(group, consumer=consumer) as other,
        one.listen(topic, lambda message: None) as a,
        other.listen(topic, lambda message: None) as b,
    ):
        members = [a, b] if one.client_id < other.client_id else [b, a]

        def shared() -> bool:
            found = [
                [queue.queue_id for queue in member.assigned if queue.topic == topic]
                for member in members
            ]
            return found == shares

        until(cluster, shared)


@pytest.mark.feature("F314")
def test_one_pull_brings_so_many_messages(cluster, topic, group) -> None:
    consumer = ConsumerSettings.from_rocketmq(
        consumerGroup=group, pullBatchSize="7", pullSizeBytes="0",
        consumeFromWhere="CONSUME_FROM_FIRST_OFFSET",
    )  # fmt: skip
    queue = MessageQueue(topic, "broker-a", 0)
    gate, sizes = threading.Event(), []

    def handler(messages: list[Any]) -> None:
        sizes.append(len(messages))
        if sum(sizes) == 20:
            gate.set()

    with cluster.client(group, consumer=consumer) as mq:
        mq.send_batch(topic, [b"%d" % number for number in range(20)], queue=queue)
        with mq.listen(topic, handler, batch=100):
            assert gate.wait(PATIENCE_S)
    assert sizes == [7, 7, 6]


# -- order ----------------------------------------------------------------------------------------


@pytest.mark.feature("F181", "F182", "F016", "F183")
@pytest.mark.parametrize("strict", [False, True], ids=["normal", "strict"])
def test_keys_while_a_broker_is_gone(tmp_path: Path, monkeypatch, strict: bool) -> None:
    """Normally its keys go to other queues, and come back; in strict order they cannot be sent."""
    ordering = partial(NamesrvSettings, order_messages=True)
    monkeypatch.setattr("kourou.testing.cluster.NamesrvSettings", ordering)
    with Cluster(tmp_path, brokers=2) as cluster:
        topic = cluster.create_topic(queues=2)
        if strict:
            asyncio.run(_order(cluster.address, topic))
        settings = ClientSettings.from_rocketmq(pollNameServerInterval="5000")
        with cluster.client("ordered", settings=settings) as mq:
            keys = [f"key-{number}" for number in range(12)]
            before = {key: _queue_of(mq, topic, key) for key in keys}
            lost = {key for key in keys if before[key].broker_name == "broker-b"}
            assert 0 < len(lost) < len(keys)
            cluster.chaos.kill("broker-b")
            cluster.clock.advance(minutes=3)  # name servers forget it
            during = {key: _queue_of(mq, topic, key) for key in keys}
            if strict:
                assert {key for key in keys if during[key] is None} == lost
                assert all(during[key] == before[key] for key in keys if key not in lost)
            else:
                assert {queue.broker_name for queue in during.values()} == {"broker-a"}
            cluster.chaos.restart("broker-b")
            cluster.clock.advance(minutes=1)
            assert {key: _queue_of(mq, topic, key) for key in keys} == before


def _queue_of(mq: Client, topic: str, key: str) -> MessageQueue | None:
    try:
        return mq.send(topic, b"x", order_key=key).queue
    except Unavailable:
        return None


async def _order(name_server: str, topic: str) -> None:
    conf = PutKvConfig(namespace="ORDER_TOPIC_CONFIG", key=topic, value="broker-a:2;broker-b:2")
    connection = ZmqConnection(name_server)
    try:
        assert (await connection.request(conf, timeout_ms=10_000)).code == 0
    finally:
        connection.close()
