"""Ranges of queues, read from brokers: the rows are what a pull consumer reads of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from kourou.client.consumer.puller import Pulled, Puller
from kourou.client.filters.python_filter import Filter
from kourou.errors import Code, Corrupt, FilterFailed, Rejected, TimedOut, Unavailable
from kourou.model.limits import BODY_SIZE_BYTES_MAX
from kourou.model.message import PullStatus
from kourou.model.names import is_system_topic
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import PullMessage
from kourou.sync import Client
from kourou.testing.cluster import Cluster
from kourou_rigs.rows import row_of
from kourou_spark_etl.source import readers
from kourou_spark_etl.source.arrow_rows import COLUMNS
from kourou_spark_etl.source.network import NetworkFacts
from kourou_spark_etl.source.offsets import OffsetSpan
from kourou_spark_etl.source.options import ReadOptions, read_options
from kourou_spark_etl.source.ranges import DataLoss, QueueRange
from kourou_spark_etl.source.readers import read_range

MakeCluster = Callable[..., Cluster]


def rows_in(
    cluster: Cluster, queue: MessageQueue, begin: int, end: int, **changes: Any
) -> list[dict[str, Any]]:
    options = ReadOptions(name_servers=cluster.address, topics=(queue.topic,), **changes)
    part = QueueRange(queue.topic, queue.broker_name, queue.queue_id, begin, end)
    batches = list(read_range(options, part, COLUMNS))
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def consumed(
    cluster: Cluster, queue: MessageQueue, *, expression: Any = MATCH_ALL
) -> list[dict[str, Any]]:
    """All of a queue, as a pull consumer reads it."""
    rows: list[dict[str, Any]] = []
    with cluster.client("reader") as client:
        consumer = client.pull_consumer("reader")
        offset = consumer.min_offset(queue)
        while True:
            pulled = consumer.pull(queue, offset, expression=expression, count_max=100)
            if pulled.status is PullStatus.NO_NEW_MESSAGE:
                return rows
            rows += [row_of(message) for message in pulled.messages]
            offset = pulled.next_offset


def compared(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    """Read every queue both ways; the rows of all."""
    facts = NetworkFacts(cluster.address)
    spans = facts.spans([topic], all_of=True)
    facts.close()
    rows: list[dict[str, Any]] = []
    for queue, span in spans.items():
        found = rows_in(cluster, queue, span.low, span.high)
        assert found == consumed(cluster, queue)
        assert len(found) == span.high - span.low
        rows += found
    return rows


# -- the same rows --------------------------------------------------------------------------------


def test_batches_keys_tags_properties(kourou_broker: Cluster, kourou_client: Client) -> None:
    topic = kourou_broker.create_topic("plain", queues=2)
    kourou_client.send_many(topic, [f"message {number}" for number in range(500)])
    kourou_client.send_batch(topic, ["bag 1", "bag 2", "bag 3"], tag="loaded")
    kourou_client.send(topic, b"", tag="Ü", keys=["A-1", "ключ"], properties={"région": "nord"})
    rows = compared(kourou_broker, topic)
    assert len(rows) == 504
    assert {row["key"] for row in rows} == {None, "A-1 ключ"}


def test_bodies_of_four_megabytes(kourou_broker: Cluster, kourou_client: Client) -> None:
    topic = kourou_broker.create_topic("huge", queues=1)
    for number in range(3):
        kourou_client.send(topic, bytes([number]) * 1_000)
        kourou_client.send(topic, _noise(BODY_SIZE_BYTES_MAX))
    assert len(compared(kourou_broker, topic)) == 6


def _noise(size: int) -> bytes:
    """What no producer can compress."""
    return random.Random(7).randbytes(size)


def test_delayed_retried_and_transactional_messages(
    kourou_broker: Cluster, kourou_client: Client
) -> None:
    topic = kourou_broker.create_topic("detours", queues=1)
    kourou_client.send(topic, b"later", delay_level=1)

    @kourou_client.transaction_check(topic)
    def check(message: object) -> bool:
        return True

    with kourou_client.transaction(topic, b"half", keys=["T"]):
        pass
    with kourou_client.transaction(topic, b"gone") as transaction:
        transaction.rollback()
    kourou_broker.clock.advance(seconds=2)
    assert {row["value"] for row in compared(kourou_broker, topic)} == {b"later", b"half"}
    with kourou_client.subscribe(topic, group="failing") as messages:
        message = next(iter(messages))
        message.retry(delay_level=1)
    kourou_broker.clock.advance(seconds=2)
    (again,) = compared(kourou_broker, "%RETRY%failing")
    assert again["reconsume_times"] == 1
    assert again["topic"] == "%RETRY%failing"


def test_tags_and_sql_are_left_to_the_broker(kourou_broker: Cluster, kourou_client: Client) -> None:
    topic = kourou_broker.create_topic("sifted", queues=1)
    for number in range(2_000):
        kourou_client.send_oneway(
            topic,
            b"%d" % number,
            tag="even" if number % 2 == 0 else "BB" if number % 5 == 0 else "odd",
            properties={"number": str(number)},
        )
    queue = MessageQueue(topic, "broker-a", 0)
    facts = NetworkFacts(kourou_broker.address)
    while facts.spans([topic], all_of=True)[queue] != OffsetSpan(0, 2_000):
        pass
    facts.close()
    for options, expected in (
        ({"tags": "even"}, range(0, 2_000, 2)),
        # "Aa" has the code of "BB": the broker sends it, and it is not meant.
        ({"tags": "Aa"}, range(0)),
        ({"sql": "number >= 1500"}, range(1_500, 2_000)),
    ):
        told = read_options(
            {"nameServer": kourou_broker.address, "subscribe": topic, **options}, {}
        )
        rows = rows_in(kourou_broker, queue, 0, 2_000, wanted=told.wanted)
        assert [int(row["value"]) for row in rows] == list(expected)
        part = [
            int(row["value"])
            for row in rows_in(kourou_broker, queue, 700, 1_600, wanted=told.wanted)
        ]
        assert part == [number for number in expected if 700 <= number < 1_600]


def test_a_filter_in_python_that_the_group_has_uploaded(kourou_cluster: MakeCluster) -> None:
    cluster = kourou_cluster(1, filter_servers=1)
    topic = cluster.create_topic("judged", queues=1)
    source = "def match(message, context):\n    return message.json % 3 == 0\n"
    with cluster.client("lake") as client:
        for number in range(60):
            client.send(topic, number)
        with client.subscribe(topic, Filter(source, name="thirds"), body_type=int) as numbers:
            assert next(iter(numbers)).body == 0
    told = read_options(
        {"nameServer": cluster.address, "subscribe": topic, "filter": "thirds", "group": "lake"}, {}
    )
    queue = MessageQueue(topic, "broker-a", 0)
    rows = rows_in(cluster, queue, 5, 50, wanted=told.wanted, group=told.group)
    assert [int(row["value"]) for row in rows] == list(range(6, 50, 3))
    with pytest.raises(FilterFailed, match="group lake has no filter nope"):
        rows_in(cluster, queue, 0, 60, wanted=Filter.named("nope"), group="lake")


# -- pulls ----------------------------------------------------------------------------------------


def test_a_range_is_read_in_order_and_in_full(
    kourou_broker: Cluster, kourou_client: Client
) -> None:
    topic = kourou_broker.create_topic("long", queues=1)
    sizes = [100, 60_000, 2_000, 300_000, 10]
    bodies = [_noise(sizes[number % 5])[:-1] + b"%d" % (number % 10) for number in range(200)]
    sent = kourou_client.send_many(topic, bodies)  # each on its own way, so in any order
    stored = [body for _, body in sorted(zip((one.offset for one in sent), bodies, strict=True))]
    queue = MessageQueue(topic, "broker-a", 0)
    for options in ({}, {"pull_batch_size": 7, "pull_window": 3}, {"pull_window": 1}):
        rows = rows_in(kourou_broker, queue, 0, 200, **options)
        assert [row["offset"] for row in rows] == list(range(200))
        assert [row["value"] for row in rows] == stored
    assert [row["offset"] for row in rows_in(kourou_broker, queue, 33, 35)] == [33, 34]


def test_two_pulls_are_in_flight(
    kourou_broker: Cluster, kourou_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kourou_broker.create_topic("flights", queues=1)
    kourou_client.send_many(topic, [b"x"] * 100)
    flying: list[int] = []
    seen: list[list[int]] = []
    two = asyncio.Event()

    class Watched(Puller):
        async def pull(self, queue: MessageQueue, offset: int, *others: Any) -> Pulled:
            flying.append(offset)
            seen.append(list(flying))
            if len(flying) == 2:
                two.set()
            try:
                if offset == 10:  # a fast broker replies before another thread submits the next
                    async with asyncio.timeout(20):
                        await two.wait()
                return await super().pull(queue, offset, *others)
            finally:
                flying.remove(offset)

    monkeypatch.setattr(readers, "Puller", Watched)
    rows = rows_in(kourou_broker, MessageQueue(topic, "broker-a", 0), 0, 100, pull_batch_size=10)
    assert len(rows) == 100
    assert seen[0] == [0], "the first pull tells how large messages are"
    assert max(map(len, seen)) == 2
    assert [offsets[-1] for offsets in seen] == list(range(0, 100, 10)), "none is asked twice"


def test_an_answer_that_is_lost_is_asked_for_again(
    kourou_broker: Cluster, kourou_client: Client
) -> None:
    topic = kourou_broker.create_topic("lost", queues=1)
    kourou_client.send_many(topic, [b"x"] * 100)
    kourou_broker.chaos.drop_answers(PullMessage, times=1, cut=True)
    rows = rows_in(kourou_broker, MessageQueue(topic, "broker-a", 0), 0, 100)
    kourou_broker.chaos.repair()
    assert [row["offset"] for row in rows] == list(range(100))


# -- what is not to be had ------------------------------------------------------------------------


def test_a_broker_that_is_gone_ends_the_read(kourou_cluster: MakeCluster) -> None:
    cluster = kourou_cluster(1)
    topic = cluster.create_topic("orders", queues=1)
    with cluster.client() as client:
        client.send(topic, b"x")
    cluster.chaos.kill("broker-a")
    queue = MessageQueue(topic, "broker-a", 0)
    with pytest.raises((TimedOut, Rejected, Unavailable), match="orders"):
        rows_in(cluster, queue, 0, 1, read_timeout_ms=300)


def test_a_name_server_that_is_gone_ends_the_read() -> None:
    options = ReadOptions(name_servers="127.0.0.1:1", read_timeout_ms=200)
    with pytest.raises(TimedOut, match=r"orders/broker-a/0@0 could not be read within 200 ms"):
        list(read_range(options, QueueRange("orders", "broker-a", 0, 0, 1), ("offset",)))


def test_offsets_that_do_not_exist(kourou_broker: Cluster, kourou_client: Client) -> None:
    topic = kourou_broker.create_topic("short", queues=1)
    kourou_client.send_many(topic, [b"x"] * 5)
    queue = MessageQueue(topic, "broker-a", 0)
    with pytest.raises(DataLoss, match=r"short.*/0 has offsets 0 to 5; the messages from 7 on"):
        rows_in(kourou_broker, queue, 7, 10)
    assert rows_in(kourou_broker, queue, 7, 10, fail_on_data_loss=False) == []


class Answering(Puller):
    """Answers the first pulls as told; the broker answers the others."""

    answers: list[Pulled]

    async def pull(self, *of: Any) -> Pulled:
        return self.answers.pop(0) if self.answers else await super().pull(*of)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (Code.PULL_OFFSET_MOVED, "the messages from 2 on were deleted before they were read"),
        (Code.MESSAGE_CORRUPT, "is damaged at 2"),
    ],
)
def test_messages_that_are_gone_and_those_behind_them(
    kourou_broker: Cluster,
    kourou_client: Client,
    monkeypatch: pytest.MonkeyPatch,
    code: Code,
    words: str,
) -> None:
    """As after retention, or damage: the broker says where it goes on."""
    topic = kourou_broker.create_topic(queues=1)
    kourou_client.send_many(topic, [b"x"] * 9)
    queue = MessageQueue(topic, "broker-a", 0)
    monkeypatch.setattr(readers, "Puller", Answering)

    def offsets(end: int = 9, next_offset: int = 5, **more: Any) -> list[int]:
        gone = Pulled(code, "", 1, next_offset=next_offset, min_offset=next_offset, max_offset=9)
        Answering.answers = [gone]
        return [row["offset"] for row in rows_in(kourou_broker, queue, 2, end, **more)]

    with pytest.raises(DataLoss, match=words):
        offsets()
    assert offsets(fail_on_data_loss=False) == [5, 6, 7, 8]
    assert offsets(end=4, fail_on_data_loss=False) == []
    assert offsets(end=4, next_offset=7, fail_on_data_loss=False) == []


def test_what_retention_took_from_a_new_queue_was_never_promised(
    kourou_broker: Cluster, kourou_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kourou_broker.create_topic(queues=1)
    kourou_client.send_many(topic, [b"x"] * 9)
    monkeypatch.setattr(readers, "Puller", Answering)
    moved = Pulled(Code.PULL_OFFSET_MOVED, "", 1, next_offset=5, min_offset=5, max_offset=9)
    Answering.answers = [moved]
    part = QueueRange(topic, "broker-a", 0, 0, 9, fresh=True)
    options = ReadOptions(name_servers=kourou_broker.address, topics=(topic,))
    batches = read_range(options, part, ("offset",))
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda one, other: one + other, "returned messages of another queue"),
        (lambda one, other: one + one, "the offsets of a pull do not ascend"),
    ],
)
def test_an_answer_with_other_messages_is_refused(
    kourou_broker: Cluster,
    kourou_client: Client,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Callable[[bytes, bytes], bytes],
    words: str,
) -> None:
    topic = kourou_broker.create_topic(queues=2)
    bodies: list[bytes] = []

    class Listening(Puller):
        async def pull(self, *of: Any) -> Pulled:
            pulled = await super().pull(*of)
            assert pulled.body is not None
            bodies.append(bytes(pulled.body))
            if len(bodies) > 2:
                pulled.body = memoryview(wrong(bodies[0], bodies[1]))
            return pulled

    monkeypatch.setattr(readers, "Puller", Listening)
    queues = [MessageQueue(topic, "broker-a", number) for number in range(2)]
    for queue in queues:
        kourou_client.send(topic, b"x", queue=queue)
        assert len(rows_in(kourou_broker, queue, 0, 1)) == 1
    with pytest.raises(Corrupt, match=words):
        rows_in(kourou_broker, queues[0], 0, 1)


def test_a_queue_that_was_taken_away(kourou_broker: Cluster, kourou_client: Client) -> None:
    topic = kourou_broker.create_topic("shrunk", queues=2)
    queue = MessageQueue(topic, "broker-a", 1)
    kourou_client.send(topic, b"x", queue=queue)
    kourou_client.admin.topics.create(topic, queues=1)
    with pytest.raises(DataLoss, match=r"shrunk.*/1 does not exist any more"):
        rows_in(kourou_broker, queue, 0, 1)
    assert rows_in(kourou_broker, queue, 0, 1, fail_on_data_loss=False) == []


def test_what_brokers_tell(kourou_cluster: MakeCluster) -> None:
    cluster = kourou_cluster(2)
    topic = cluster.create_topic("orders", queues=2)
    with cluster.client() as client:
        client.send(topic, b"x", queue=MessageQueue(topic, "broker-b", 1))
    facts = NetworkFacts(cluster.address, "lake")
    queues = [MessageQueue(topic, name, number) for name in cluster.brokers for number in (0, 1)]
    spans = facts.spans([topic], all_of=True)
    assert spans == {**dict.fromkeys(queues, OffsetSpan(0, 0)), queues[3]: OffsetSpan(0, 1)}
    topics = [name for name in facts.topics() if not is_system_topic(name)]
    assert topics == [topic]
    assert facts.offset_by_time(queues[3], 0) == 0
    assert facts.offset_by_time(queues[3], cluster.clock.now_ms + 1) == 1
    facts.commit({queues[3]: 1})
    with cluster.client() as client:
        told = client.admin.offsets.of("lake", topic)
    assert told[queues[3]].consumer_offset == 1
    cluster.chaos.kill("broker-a")
    left = facts.spans([topic], all_of=False)
    assert {queue.broker_name for queue in left} == {"broker-b"}
    facts.close()
