"""What a broker promises by its role, its disk and its copies, and what is left when machines die.

The cluster is in this process, and its time is the test's.
"""

from __future__ import annotations

import itertools
import random
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from kourou import DeadLetter, ProducerSettings
from kourou.client.settings.client_settings import ClientSettings, PullConsumerSettings
from kourou.errors import GroupNotFound, KourouError, NoPermission, Rejected, TopicNotFound
from kourou.model.message import SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou.protocol.record.message_id import decode_offset_id
from kourou.sync import Client
from kourou.testing.cluster import Cluster

TOPIC = "orders"
AT_ONCE = {"maxTransferCountOnMessageInMemory": "1000"}
SYNC_MASTER = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "60000", **AT_ONCE}
COPIED = {"brokerRole": "ASYNC_MASTER", **AT_ONCE}
SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}
ONCE = ProducerSettings(producer_group="once", retry_times_when_send_failed=0)
ONE_RETRY = ProducerSettings(producer_group="once-again", retry_times_when_send_failed=1)
"""That is enough where the second attempt goes to another broker."""

MISSING = frozenset(
    {SendStatus.SLAVE_NOT_AVAILABLE, SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT}
)
_numbers = itertools.count(1)


def at(broker: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(TOPIC, broker, queue_id)


def until_in_sync(mq: Client, broker: str) -> None:
    """Send until a copy confirms; until then senders are warned."""
    while mq.send(TOPIC, b"who copies?", queue=at(broker)).status is not SendStatus.SEND_OK:
        pass


def until_copied(cluster: Cluster, broker: str) -> None:
    """Wait until its copy has its whole log, which nobody sends to meanwhile."""
    pair = [one for one in cluster.everyone if one.name.startswith(broker)]
    while len({one.service.store.end for one in pair}) > 1:
        cluster.clock.advance(0)


PATIENT_FLUSH = {"flushCommitLogTimed": "true", "flushCommitLogThoroughInterval": "20000"}
PATIENT_WRITE_OUT = {
    "transientStorePoolEnable": "true",
    "transientStorePoolSize": "2",
    "commitCommitLogThoroughInterval": "20000",
}


@pytest.mark.feature("F354")
@pytest.mark.parametrize(
    ("figure", "keys"),
    [
        ("remainHowManyDataToFlush", PATIENT_FLUSH | {"flushIntervalCommitLog": "20000"}),
        ("remainHowManyDataToFlush", PATIENT_FLUSH | {"flushCommitLogLeastPages": "1000"}),
        ("remainHowManyDataToCommit", PATIENT_WRITE_OUT | {"commitIntervalCommitLog": "20000"}),
        ("remainHowManyDataToCommit", PATIENT_WRITE_OUT | {"commitCommitLogLeastPages": "1000"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_is_appended_waits_as_long_as_the_keys_say(
    tmp_path: Path, figure: str, keys: dict[str, str]
) -> None:
    """By default it is in the file and on the disk within a second, at most ten."""
    with Cluster(tmp_path, settings=keys) as cluster, cluster.client("till") as mq:

        def waiting() -> int:
            return int(mq.admin.brokers.runtime("broker-a")[figure])

        mq.admin.topics.create(TOPIC, queues=1)
        cluster.clock.advance(21)
        mq.send(TOPIC, random.Random(1).randbytes(100_000))
        cluster.clock.advance(15)
        assert waiting() > 100_000
        cluster.clock.advance(10)
        while waiting():  # a thread writes or flushes it: it was woken, and may not have run yet
            cluster.clock.advance(0)


@pytest.mark.feature("F354")
def test_a_flush_that_is_not_timed_does_not_wait_for_the_clock(tmp_path: Path) -> None:
    keys = {"flushIntervalCommitLog": "20000", "flushCommitLogThoroughInterval": "20000"}
    with Cluster(tmp_path, settings=keys) as cluster, cluster.client("till") as mq:
        mq.admin.topics.create(TOPIC, queues=1)
        mq.send(TOPIC, random.Random(1).randbytes(100_000))
        cluster.clock.advance(1)
        while mq.admin.brokers.runtime("broker-a")["remainHowManyDataToFlush"] != "0":
            cluster.clock.advance(0)


def bodies(mq: Client, queue: MessageQueue, *, timeout_ms: int = 10_000) -> list[bytes]:
    """All that a queue has.

    By few pulls: before each, the client waits three seconds for a broker of the topic that is down
    to answer its heartbeat.
    """
    settings = PullConsumerSettings(
        consumer_group=f"inspection-{next(_numbers)}", consumer_pull_timeout_ms=timeout_ms
    )
    found: list[bytes] = []
    reader, offset, end = mq.pull_consumer(settings=settings), 0, 1
    while offset < end:
        pulled = reader.pull(queue, offset, count_max=1_000)
        found += [message.body for message in pulled.messages]
        offset, end = pulled.next_offset, pulled.max_offset
    return found


def stop(cluster: Cluster, broker: str) -> None:
    """Stop it as SIGTERM does."""
    (found,) = (one for one in cluster.members if one.name == broker)
    cluster._thread.run(found.stop())


# -- roles and statuses ---------------------------------------------------------------------------


@pytest.mark.feature("F349", "F167", "F184")
def test_the_role_decides_what_a_sender_is_promised(tmp_path: Path) -> None:
    """The same settings but brokerRole, and no copy anywhere; either way the message is stored."""
    outcomes = {}
    for role in ("ASYNC_MASTER", "SYNC_MASTER"):
        with Cluster(tmp_path / role, settings={"brokerRole": role}) as cluster:
            cluster.create_topic(TOPIC, queues=1)
            with cluster.client() as mq:
                outcomes[role] = mq.send(TOPIC, b"x", queue=at("broker-a")).status
                assert bodies(mq, at("broker-a")) == [b"x"]
    assert outcomes == {
        "ASYNC_MASTER": SendStatus.SEND_OK,
        "SYNC_MASTER": SendStatus.SLAVE_NOT_AVAILABLE,
    }


@pytest.mark.feature("F184", "F167")
def test_a_sender_who_needs_strict_order_sends_again_until_it_is_ok(tmp_path: Path) -> None:
    """Into the same queue: what the copy has afterwards begins with the order that was sent."""
    with Cluster(tmp_path, replicas=1, settings=SYNC_MASTER) as cluster:
        cluster.create_topic(TOPIC, queues=1)
        with cluster.client() as mq:
            until_in_sync(mq, "broker-a")
            cluster.chaos.kill("broker-a-s1")
            results = [mq.send(TOPIC, b"paid", queue=at("broker-a")) for _ in range(3)]
            assert results[-1].status in MISSING
            cluster.chaos.restart("broker-a-s1")
            while results[-1].status is not SendStatus.SEND_OK:
                results.append(mq.send(TOPIC, b"paid", queue=at("broker-a")))
            assert {one.queue for one in results} == {at("broker-a")}
            assert mq.send(TOPIC, b"shipped", queue=at("broker-a")).status is SendStatus.SEND_OK
            cluster.chaos.kill("broker-a")
            stored = [body for body in bodies(mq, at("broker-a")) if body != b"who copies?"]
            assert stored == [b"paid"] * len(results) + [b"shipped"]


# -- which machine may die ------------------------------------------------------------------------


@pytest.mark.feature("F113")
@pytest.mark.parametrize(
    ("flush", "fault"),
    [
        ("SYNC_FLUSH", "stop"),
        ("SYNC_FLUSH", "kill"),
        ("SYNC_FLUSH", "power loss"),
        ("ASYNC_FLUSH", "stop"),
        ("ASYNC_FLUSH", "kill"),
    ],
)
def test_one_machine_keeps_all_messages(tmp_path: Path, flush: str, fault: str) -> None:
    """The broker flushes for its senders or when it stops, never by the clock."""
    rests = {"flushIntervalCommitLog": 3_600_000, "flushCommitLogThoroughInterval": 3_600_000}
    with Cluster(tmp_path, settings={"flushDiskType": flush, **rests}) as cluster:
        cluster.create_topic(TOPIC, queues=1)
        with cluster.client() as mq:
            sent = [mq.send(TOPIC, b"%d" % number, queue=at("broker-a")) for number in range(20)]
            assert {one.status for one in sent} == {SendStatus.SEND_OK}
            match fault:
                case "stop":
                    stop(cluster, "broker-a")
                case "kill":
                    cluster.chaos.kill("broker-a")
                case _:
                    cluster.chaos.power_loss("broker-a")
            cluster.chaos.restart("broker-a")
            assert bodies(mq, at("broker-a")) == [b"%d" % number for number in range(20)]


@pytest.mark.feature("F113")
@pytest.mark.parametrize(
    ("size", "seconds"), [(16_384, 1.0), (10, 11.0)], ids=["pages", "a few bytes"]
)
def test_without_synchronous_flush_a_power_loss_takes_the_last_seconds_only(
    tmp_path: Path, size: int, seconds: float
) -> None:
    """By default four pages are flushed within half a second, and anything within ten and a half.

    The disk keeps as little as it may of everything else.
    """
    flushed = [random.Random(number).randbytes(size) for number in range(20)]
    fresh = [b"fresh %d" % number for number in range(10)]
    with Cluster(tmp_path, settings={"flushDiskType": "ASYNC_FLUSH"}) as cluster:
        cluster.create_topic(TOPIC, queues=1)
        with cluster.client() as mq:
            for body in flushed:
                assert mq.send(TOPIC, body, queue=at("broker-a")).status is SendStatus.SEND_OK
            cluster.clock.advance(seconds=seconds)
            for body in fresh:
                assert mq.send(TOPIC, body, queue=at("broker-a")).status is SendStatus.SEND_OK
            cluster.members[0].disk._rng.choice = min
            cluster.chaos.power_loss("broker-a")
            cluster.chaos.restart("broker-a")
            found = bodies(mq, at("broker-a"))
    assert found[: len(flushed)] == flushed
    assert found[len(flushed) :] == fresh[: len(found) - len(flushed)], "without a gap"


@pytest.mark.feature("F113", "F141")
def test_a_destroyed_disk_takes_nothing_that_a_synchronous_copy_confirmed(tmp_path: Path) -> None:
    with Cluster(tmp_path, replicas=1, settings=SYNC_MASTER) as cluster:
        cluster.create_topic(TOPIC, queues=1)
        [copy] = (one for one in cluster.everyone if one.name == "broker-a-s1")
        with cluster.client() as mq:
            until_in_sync(mq, "broker-a")
            for number in range(50):
                result = mq.send(TOPIC, b"%d" % number, queue=at("broker-a"))
                assert result.status is SendStatus.SEND_OK
                _, position = decode_offset_id(result.offset_message_id)
                assert copy.service.store.end > position, "replied before it was copied"
            cluster.chaos.power_loss("broker-a")
            found = bodies(mq, at("broker-a"))
    assert [body for body in found if body != b"who copies?"] == [b"%d" % n for n in range(50)]


@pytest.mark.feature("F113", "F140")
def test_a_destroyed_disk_takes_one_percent_at_most_that_an_asynchronous_copy_follows(
    tmp_path: Path,
) -> None:
    """The disk is gone right after the last reply, and no reply waited for the copy."""
    wanted = [b"%d" % number for number in range(500)]
    with Cluster(tmp_path, replicas=1, settings=COPIED) as cluster:
        cluster.create_topic(TOPIC, queues=1)
        with cluster.client() as mq:
            until_copied(cluster, "broker-a")
            for body in wanted:
                assert mq.send(TOPIC, body, queue=at("broker-a")).status is SendStatus.SEND_OK
            cluster.chaos.power_loss("broker-a")
            found = bodies(mq, at("broker-a"))
    assert found == wanted[: len(found)]
    assert len(found) >= 0.99 * len(wanted)


@pytest.mark.feature("F139", "F113")
def test_masters_without_slaves(tmp_path: Path) -> None:
    """Mode 2: sends go on at the other master, and what the dead one has waits for its return."""
    with Cluster(tmp_path, brokers=2, settings=SYNC_FLUSH) as cluster:
        cluster.create_topic(TOPIC, queues=4)
        with cluster.client(producer=ONE_RETRY) as mq:
            for broker in ("broker-a", "broker-b"):
                mq.send(TOPIC, broker.encode(), queue=at(broker))
            cluster.chaos.kill("broker-a")
            assert senders(mq) == {"broker-b"}
            assert bodies(mq, at("broker-b"))[0] == b"broker-b"
            with pytest.raises(KourouError):
                bodies(mq, at("broker-a"), timeout_ms=100)
            cluster.chaos.restart("broker-a")
            cluster.clock.advance(seconds=40)  # the client asks for routes every 30 s
            assert bodies(mq, at("broker-a")) == [b"broker-a"]


@pytest.mark.feature("F139")
def test_a_master_that_refuses_a_send_is_not_asked_again(tmp_path: Path) -> None:
    """One retry is enough, for it goes to the other master."""
    with Cluster(tmp_path, brokers=2, settings=SYNC_FLUSH) as cluster:
        cluster.create_topic(TOPIC, queues=4)
        with cluster.client(producer=ONE_RETRY) as mq:
            assert senders(mq) == {"broker-a", "broker-b"}
            cluster.chaos.fill_disk("broker-a")
            assert senders(mq) == {"broker-b"}


@pytest.mark.feature("F113", "F140", "F141")
@pytest.mark.parametrize("role", [COPIED, SYNC_MASTER], ids=["async", "sync"])
def test_masters_with_slaves(tmp_path: Path, role: dict[str, str]) -> None:
    """Modes 3 and 4: a master dies, its slave serves what it has, sends go on at the other one."""
    with Cluster(tmp_path, brokers=2, replicas=1, settings=role) as cluster:
        cluster.create_topic(TOPIC, queues=4)
        with cluster.client(producer=ONE_RETRY) as mq:
            for broker in ("broker-a", "broker-b"):
                until_in_sync(mq, broker)
            mq.send(TOPIC, b"copied", queue=at("broker-a"))
            until_copied(cluster, "broker-a")
            cluster.chaos.kill("broker-a")
            assert bodies(mq, at("broker-a"))[-1] == b"copied"
            with pytest.raises(KourouError):
                mq.send(TOPIC, b"x", queue=at("broker-a"), timeout_ms=100)
            assert senders(mq) == {"broker-b"}


@pytest.mark.feature("F027", "F273", "F274")
def test_an_old_backlog_is_not_pulled_from_the_leader(tmp_path: Path) -> None:
    """Everything is old to a leader that counts nothing as in memory: one pull, and no more."""
    settings = {**SYNC_MASTER, "slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
    with Cluster(tmp_path, replicas=1, settings=settings) as cluster:
        cluster.create_topic(TOPIC, queues=1)
        with cluster.client() as mq:
            until_in_sync(mq, "broker-a")
            for number in range(20):
                mq.send(TOPIC, b"%d" % number, queue=at("broker-a"))
            cluster.clock.advance(seconds=40)  # the route has the replica by then
            reader = mq.pull_consumer("late")
            pulled = reader.pull(at("broker-a"), 0, count_max=2)
            at_leader = cluster.chaos.drop_requests("pull", times=None, broker="broker-a")
            while pulled.next_offset < pulled.max_offset:
                pulled = reader.pull(at("broker-a"), pulled.next_offset, count_max=2)
            assert pulled.messages[-1].body == b"19"
            assert at_leader.met == 0


# -- how soon clients know ------------------------------------------------------------------------


@pytest.mark.feature("F034", "F359", "F376")
def test_after_40_s_every_client_knows_that_a_broker_may_not_be_written(tmp_path: Path) -> None:
    """With the intervals that clients have by default; then the broker stops, and no send fails."""
    with Cluster(tmp_path, brokers=2) as cluster:
        cluster.create_topic(TOPIC, queues=2)
        clients = [
            cluster.client(f"shop-{number}", settings=ClientSettings(), producer=ONCE).open()
            for number in range(3)
        ]
        try:
            for mq in clients:
                assert senders(mq) == {"broker-a", "broker-b"}
            clients[0].admin.brokers.wipe_write_perm("broker-a")
            assert senders(clients[1]) == {"broker-a", "broker-b"}, "the route is a while old"
            cluster.clock.advance(seconds=40)
            for mq in clients:
                assert senders(mq) == {"broker-b"}
            stop(cluster, "broker-a")
            for mq in clients:
                assert senders(mq) == {"broker-b"}
            cluster.chaos.restart("broker-a")
            cluster.clock.advance(seconds=40)
            for mq in clients:
                assert senders(mq) == {"broker-a", "broker-b"}
        finally:
            for mq in clients:
                mq.close()


def senders(mq: Client) -> set[str]:
    """The brokers that store ten messages."""
    results: list[SendResult] = [mq.send(TOPIC, b"x") for _ in range(10)]
    assert {one.status for one in results} == {SendStatus.SEND_OK}
    return {one.queue.broker_name for one in results}


# -- who makes topics and groups ------------------------------------------------------------------


@pytest.mark.feature("F377", "F331", "F332")
@pytest.mark.parametrize("at_start", ["true", "false"])
def test_topics_and_groups_are_made_on_demand_offline_only(tmp_path: Path, at_start: str) -> None:
    """A broker goes online by its file, or while it runs: then it still has the topic TBW102."""
    keys = ("autoCreateTopicEnable", "autoCreateSubscriptionGroup")
    settings = dict.fromkeys(keys, at_start)
    with Cluster(tmp_path, settings=settings) as cluster, cluster.client() as mq:
        cluster.create_topic("known", queues=1)
        queue = MessageQueue("known", "broker-a", 0)
        if at_start == "true":
            assert mq.send("offline", b"x").status is SendStatus.SEND_OK
            assert mq.pull_consumer("offline").pull(queue, 0).messages == []
            mq.admin.brokers.update_config("broker-a", dict.fromkeys(keys, "false"))
        with pytest.raises(TopicNotFound):
            mq.send("online", b"x", timeout_ms=500)
        with pytest.raises(GroupNotFound):
            mq.pull_consumer("online").pull(queue, 0)
        assert ("offline" in mq.admin.topics.list()) is (at_start == "true")
        assert "online" not in mq.admin.topics.list()


# -- one queue ------------------------------------------------------------------------------------


@pytest.mark.feature("F180")
def test_one_queue_and_one_consumer_at_a_time_order_everything(tmp_path: Path) -> None:
    """While the first handler blocks, more messages come and the queue goes to another consumer."""
    count, calls = 20, list[tuple[str, bytes]]()
    entered, released, enough = (threading.Event() for _ in range(3))

    def handler(message: object) -> None:
        body = message.body  # type: ignore[attr-defined]  # a test's shorthand
        calls.append(("begin", body))
        entered.set()
        assert released.wait(60)
        calls.append(("end", body))
        if len(calls) == 2 * count:
            enough.set()

    # The queue belongs to the consumer with the smallest ID.
    second, first = (ClientSettings(client_ip="10.9.8.7", instance_name=name) for name in "ab")
    with Cluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, queues=1)
        with (
            cluster.client("one", settings=first) as mq,
            cluster.client("one", settings=second) as other,
            mq.listen(TOPIC, handler, ordered=True) as losing,
        ):
            mq.send(TOPIC, b"0")
            assert entered.wait(60)
            for number in range(1, count):
                mq.send(TOPIC, b"%d" % number)
            cluster.clock.advance(seconds=1)
            with other.listen(TOPIC, handler, ordered=True) as gaining:
                cluster.clock.advance(minutes=2)  # locks lapse after one, unless renewed
                assert (losing.assigned, gaining.assigned) == ([], [])
                assert calls == [("begin", b"0")]
                released.set()
                assert enough.wait(60)
                assert gaining.assigned == [at("broker-a")]
    assert calls == [(step, b"%d" % number) for number in range(count) for step in ("begin", "end")]


# -- the key index --------------------------------------------------------------------------------


@pytest.mark.feature("F347")
@pytest.mark.parametrize("safe", ["true", "false"])
def test_no_key_is_lost_by_a_power_loss(tmp_path: Path, safe: str) -> None:
    """The index itself was never flushed: it is built again from the log."""
    settings = {
        **SYNC_FLUSH,
        "messageIndexSafe": safe,
        "flushIntervalConsumeQueue": 3_600_000,
        "flushConsumeQueueThoroughInterval": 3_600_000,
        "maxHashSlotNum": 1_000,
        "maxIndexNum": 4_000,
    }
    with Cluster(tmp_path, settings=settings) as cluster, cluster.client() as mq:
        for number in range(20):
            mq.send(TOPIC, b"x", keys=[f"A-{number}"])
        cluster.chaos.power_loss()
        cluster.chaos.restart()
        for number in range(20):
            found = mq.admin.messages.by_key(TOPIC, f"A-{number}")
            assert [one.keys for one in found] == [(f"A-{number}",)]


@pytest.mark.feature("F346")
def test_keys_are_indexed_unless_the_index_is_off(tmp_path: Path) -> None:
    for enabled in ("true", "false"):
        folder = tmp_path / enabled
        settings = {"messageIndexEnable": enabled, "maxHashSlotNum": 1_000, "maxIndexNum": 4_000}
        with (
            Cluster(folder, storage="disk", settings=settings) as cluster,
            cluster.client() as mq,
        ):
            mq.send(TOPIC, b"x", keys=["A-1"])
            if enabled == "true":
                assert [one.keys for one in mq.admin.messages.by_key(TOPIC, "A-1")] == [("A-1",)]
            else:
                with pytest.raises(Rejected, match="messageIndexEnable=true"):
                    mq.admin.messages.by_key(TOPIC, "A-1")
            assert any((folder / "broker-a" / "index").iterdir()) is (enabled == "true")


# -- dead letters ---------------------------------------------------------------------------------


@pytest.mark.feature("F223", "F362")
def test_dead_letters_can_be_closed_to_readers_and_opened_again(tmp_path: Path) -> None:
    """They are readable at once, as in RocketMQ after 4.9.1; perm 2 hides them, 6 shows them."""
    dead = "%DLQ%billing"
    with Cluster(tmp_path) as cluster, cluster.client("billing") as mq:
        cluster.create_topic(TOPIC, queues=1)
        mq.send(TOPIC, b"A-1")
        with mq.listen(TOPIC, refuse) as listener:
            while listener.counts.sent_back < 1:
                cluster.clock.advance(0)
        reader, queue = mq.pull_consumer("inspection"), MessageQueue(dead, "broker-a", 0)
        assert [one.body for one in reader.pull(queue, 0).messages] == [b"A-1"]
        mq.admin.topics.set_perm(dead, 2)
        with pytest.raises(NoPermission):
            reader.pull(queue, 0)
        mq.admin.topics.set_perm(dead, 6)
        assert [one.body for one in reader.pull(queue, 0).messages] == [b"A-1"]


def refuse(message: object) -> None:
    raise DeadLetter("no number")


# -- settings of clients --------------------------------------------------------------------------


@pytest.mark.feature("F177")
def test_every_kind_of_client_has_the_common_settings(tmp_path: Path) -> None:
    """Under RocketMQ's names, readable afterwards; the broker knows each kind by its own ID."""
    kinds = ("producer", "transaction", "push", "pull")
    common = {
        kind: ClientSettings.from_rocketmq(clientIP="10.9.8.7", instanceName=f"till-{kind}")
        for kind in kinds
    }
    for kind, settings in common.items():
        assert (settings.client_ip, settings.instance_name) == ("10.9.8.7", f"till-{kind}")
    handled = threading.Event()
    transacting = ProducerSettings(producer_group="transaction")
    with Cluster(tmp_path) as cluster, ExitStack() as stack:
        cluster.create_topic(TOPIC, queues=1)
        clients = {
            kind: stack.enter_context(cluster.client(kind, settings=settings))
            for kind, settings in common.items()
        }
        clients["producer"].send(TOPIC, b"whole")
        producer = stack.enter_context(
            clients["transaction"].transaction_producer(
                transacting, execute=lambda *_: True, check=lambda _: True
            )
        )
        producer.send_in_transaction(TOPIC, b"half")
        stack.enter_context(clients["push"].listen(TOPIC, lambda _: handled.set()))
        assert handled.wait(60)
        puller = clients["pull"].pull_consumer("pull")
        pulled = puller.pull(at("broker-a"), 0)
        assert [one.body for one in pulled.messages] == [b"whole", b"half"]
        cluster.clock.advance(seconds=1)  # heartbeats follow a moment later
        groups = clients["producer"].admin.groups
        known = {
            "producer": groups.producers("producer"),
            "transaction": groups.producers("transaction"),
            "push": groups.members("push"),
            "pull": groups.members("pull"),
        }
        assert {kind: [one.client_id for one in ones] for kind, ones in known.items()} == {
            kind: [f"10.9.8.7@till-{kind}"] for kind in kinds
        }
