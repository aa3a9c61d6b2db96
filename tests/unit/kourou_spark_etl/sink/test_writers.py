"""Writers without Spark: attempts, commits that die at each step, brokers that die too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, StructType

from kourou.client.session.connections import Connections
from kourou.errors import BadRequest, KourouError, MessageIllegal, NoPermission, Unavailable
from kourou.model.limits import BODY_SIZE_BYTES_MAX
from kourou.model.message import PullStatus
from kourou.protocol.messages.sends import DecideBatch, PrepareBatch, ResolveBatch, SendRecords
from kourou.testing.cluster import Cluster
from kourou_spark_etl.data_source import batch_writer, stream_writer
from kourou_spark_etl.sink import draft_columns, writers
from kourou_spark_etl.sink.options import WriteOptions, write_options
from kourou_spark_etl.sink.writers import TaskDone, _commit, _commits, write_partition
from kourou_spark_etl.source.network import OpenClient

MakeCluster = Callable[..., Cluster]
TOPIC = "out"
SCHEMA = StructType().add("value", BinaryType())


@pytest.fixture
def cluster(kourou_cluster: MakeCluster) -> Cluster:
    made = kourou_cluster(2)
    made.create_topic(TOPIC, queues=2)
    return made


def bodies(cluster: Cluster, topic: str = TOPIC) -> list[bytes]:
    return sorted(message.body for message in messages(cluster, topic))


def messages(cluster: Cluster, topic: str = TOPIC) -> Iterator[Any]:
    with cluster.client() as client:
        consumer = client.pull_consumer()
        for queue in consumer.queues(topic):
            offset = 0
            while (pulled := consumer.pull(queue, offset, count_max=64)).status is PullStatus.FOUND:
                yield from pulled.messages
                offset = pulled.next_offset


def table(**columns: Iterable[Any]) -> list[pa.RecordBatch]:
    return [pa.record_batch({name: list(values) for name, values in columns.items()})]


def told(cluster: Cluster, **options: str) -> WriteOptions:
    return write_options({"nameServer": cluster.address, "topic": TOPIC, **options}, {})


def written(
    cluster: Cluster, rows: list[bytes], batch: int = 0, partition: int = 0, **options: str
) -> TaskDone:
    batches = iter(table(value=rows) if rows else [])
    return write_partition(told(cluster, **options), ("value",), batches, ("q", batch), partition)


def commit(cluster: Cluster, *done: TaskDone) -> None:
    _commit(told(cluster, commitTimeoutMs="20000"), list(done), last=False)


def test_nothing_is_seen_before_the_commit_and_losers_never(cluster: Cluster) -> None:
    lost = written(cluster, [b"a0", b"a1"])
    first = written(cluster, [b"a0", b"a1", b"a2"])
    second = written(cluster, [b"b0"], partition=1)
    assert (lost.rows, sum(first.counts.values())) == (2, 3)
    assert set(first.counts) == {"broker-a", "broker-b"}
    assert bodies(cluster) == []
    commit(cluster, first, second)
    commit(cluster, first, second)
    assert bodies(cluster) == [b"a0", b"a1", b"a2", b"b0"]
    again = written(cluster, [b"a0", b"a1", b"a2"])
    assert again.relied
    commit(cluster, again)
    assert bodies(cluster) == [b"a0", b"a1", b"a2", b"b0"]


class Died(Exception):
    """The driver's process is gone."""


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_at_any_step_is_finished_by_the_next_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    real = Connections.ask
    expected: list[bytes] = []
    for step in itertools.count():
        calls = itertools.count()

        async def ask(
            self: Connections,
            address: str,
            request: Any,
            at: int = step,
            numbers: Iterator[int] = calls,
            **more: Any,
        ) -> Any:
            counted = isinstance(request, (PrepareBatch, DecideBatch, ResolveBatch))
            dies = counted and next(numbers) == at
            if dies and not late:
                raise Died
            reply = await real(self, address, request, **more)
            if dies:
                raise Died
            return reply

        rows = [b"%d/%d" % (step, number) for number in range(5)]
        expected += rows
        done = written(cluster, rows, step)
        with monkeypatch.context() as patched:
            patched.setattr(Connections, "ask", ask)
            try:
                commit(cluster, done)
                died = False
            except Died:
                died = True
        if died:
            commit(cluster, written(cluster, rows, step))
        assert bodies(cluster) == sorted(expected), step
        if not died:
            break
    assert step == 5, "two prepare, one decides, two resolve"


def test_a_broker_without_messages_that_left_the_cluster_holds_up_no_commit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before the decision nor for the driver that finishes it."""
    real = Connections.ask

    async def ask(self: Connections, address: str, request: Any, **more: Any) -> Any:
        if isinstance(request, ResolveBatch):
            raise Died
        return await real(self, address, request, **more)

    done = written(cluster, [b"a", b"b"])
    done.counts = {**done.counts, "broker-gone": 0}
    with monkeypatch.context() as patched:
        patched.setattr(Connections, "ask", ask)
        with pytest.raises(Died):
            commit(cluster, done)
    assert bodies(cluster) == []
    commit(cluster, done)
    assert bodies(cluster) == [b"a", b"b"]


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_brokers_die_between_the_steps(kourou_cluster: MakeCluster, power: bool) -> None:
    cluster = kourou_cluster(2, settings={"flushDiskType": "SYNC_FLUSH"} if power else {})
    cluster.create_topic(TOPIC, queues=2)
    expected: list[bytes] = []

    def die(name: str) -> None:
        (cluster.chaos.power_loss if power else cluster.chaos.kill)(name)
        cluster.chaos.restart(name)

    for batch in range(2):
        rows = [b"%d/%d" % (batch, number) for number in range(6)]
        expected += rows
        done = written(cluster, rows, batch)
        die("broker-a")
        die("broker-b")
        commit(cluster, done)
        die("broker-a")
        commit(cluster, done)
    assert bodies(cluster) == sorted(expected)


def test_a_coordinator_that_is_away_is_not_replaced(cluster: Cluster) -> None:
    commit(cluster, written(cluster, [b"%d" % number for number in range(4)]))
    with OpenClient(cluster.address) as client:
        known = client.run(_commits(client, told(cluster), "q").look())
    assert (known.decided, known.resolved, dict(known.winners)) == (0, 0, {})
    cluster.chaos.kill(known.coordinator)
    with pytest.raises(Unavailable, match=known.coordinator):
        written(cluster, [b"x"], 1, commitTimeoutMs="300")
    (other,) = set(known.brokers) - {known.coordinator}
    cluster.chaos.restart(known.coordinator)
    cluster.chaos.kill(other)
    done = written(cluster, [], 1)
    assert not done.relied, "the other one need not answer"


def test_a_batch_write_counts_once_or_not_at_all(cluster: Cluster) -> None:
    options = {"nameServer": cluster.address, "topic": TOPIC}
    writer = batch_writer(options, SCHEMA, False)
    done = writer.write(iter(table(value=[b"1", b"2"])))
    dead = writer.write(iter(table(value=[b"1"])))
    assert isinstance(dead, TaskDone)
    writer.commit([done])
    assert bodies(cluster) == [b"1", b"2"]
    writer.abort([None])
    other = batch_writer(options, SCHEMA, False)
    other.write(iter(table(value=[b"3"])))
    other.abort([None])
    with pytest.raises(KourouError):
        other.commit([TaskDone(other._query, 0, 0, "t1", {"broker-a": 1})])  # type: ignore[attr-defined]  # its own
    assert bodies(cluster) == [b"1", b"2"]
    named = {**options, "txnAppId": "nightly", "txnVersion": "7"}
    for _ in range(2):
        writer = batch_writer(named, SCHEMA, False)
        writer.commit([writer.write(iter(table(value=[b"once"])))])
    assert bodies(cluster) == [b"1", b"2", b"once"]


def test_at_least_once_is_seen_at_once(cluster: Cluster) -> None:
    options = {"nameServer": cluster.address, "topic": TOPIC, "semantics": "at-least-once"}
    for _ in range(2):
        writer = batch_writer(options, SCHEMA, False)
        writer.commit([writer.write(iter(table(value=[b"x"])))])
    assert bodies(cluster) == [b"x", b"x"]


def test_columns_become_what_a_producer_says(cluster: Cluster) -> None:
    cluster.create_topic("other", queues=1)
    schema = (
        StructType()
        .add("value", StringType())
        .add("topic", StringType())
        .add("key", StringType())
        .add("tags", StringType())
        .add("properties", MapType(StringType(), StringType()))
        .add("order_key", StringType())
        .add("delay_ms", LongType())
        .add("trace_parent", StringType())
    )
    rows = [
        ("one", None, "k1 k2", "paid", {"region": "nord", "gone": None}, "A", None, None),
        ("two", "other", None, None, None, "A", None, "00-ab-cd-01"),
        ("x" * 9_000, None, None, None, None, "A", 1_000, None),
    ]
    types = [pa.string()] * 4 + [pa.map_(pa.string(), pa.string()), pa.string(), pa.int64()]
    columns = [
        pa.array([list(one.items()) if isinstance(one, dict) else one for one in values], kind)
        for values, kind in zip(zip(*rows, strict=True), [*types, pa.string()], strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=schema.fieldNames())
    options = {"nameServer": cluster.address, "topic": TOPIC, "tags": "usual"}
    writer = batch_writer(options, schema, False)
    writer.commit([writer.write(iter([batch]))])
    [one] = list(messages(cluster))
    assert (one.body, one.tag, one.keys) == (b"one", "paid", ("k1", "k2"))
    assert one.properties["region"] == "nord"
    assert not {"gone", "KOUROU_BATCH"} & set(one.properties)
    [two] = list(messages(cluster, "other"))
    assert (two.tag, two.properties["traceparent"]) == ("usual", "00-ab-cd-01")
    cluster.clock.advance(seconds=2)
    assert bodies(cluster) == [b"one", b"x" * 9_000]
    queues = {(message.queue.broker_name, message.queue.queue_id) for message in messages(cluster)}
    assert len(queues) == 1, "of one order key"


@pytest.mark.parametrize(
    ("rows", "kind", "words"),
    [
        ({"value": [b"ok", None]}, MessageIllegal, "row 1 has no value"),
        ({"value": [b"x" * (BODY_SIZE_BYTES_MAX + 1)]}, MessageIllegal, "row 0: the body has"),
        ({"value": [b"x"], "queue": [4]}, BadRequest, "row 0: queue 4"),
        ({"value": [b"x"], "delay_ms": [77]}, BadRequest, "row 0: delay 77 ms"),
        ({"value": [b"x"], "tags": ["a||b"]}, KourouError, "row 0: "),
        ({"value": [b"x"], "topic": ["bad topic"]}, BadRequest, "row 0: "),
        ({"value": [b"x"], "topic": ["SCHEDULE_TOPIC_XXXX"]}, NoPermission, "SCHEDULE"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(
    cluster: Cluster, rows: dict[str, list[Any]], kind: type[KourouError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        write_partition(told(cluster), tuple(rows), iter(table(**rows)), ("q", 0), 0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topik": "x"}, "'topik' is unknown"),
        ({"topic": "a b"}, "'topic' is 'a b'"),
        ({"semantics": "twice"}, "exactly-once or at-least-once"),
        ({"delayLevel": "x"}, "'delayLevel' is 'x'"),
        ({"txnAppId": "a"}, "require each other"),
        ({"txnAppId": "a", "txnVersion": "1", "semantics": "at-least-once"}, "exactly-once"),
        ({"nameServer": "", "namesrvAddr": "h:1"}, "not both"),
    ],
)
def test_options_that_are_wrong_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        write_options({"nameServer": "h:1", **given} if "nameServer" not in given else given, {})


def test_a_name_server_is_needed() -> None:
    with pytest.raises(BadRequest, match="'nameServer' is missing"):
        write_options({"topic": "x"}, {})


@pytest.mark.parametrize(
    ("schema", "more", "words"),
    [
        (StructType().add("body", BinaryType()), {}, "'body' is unknown"),
        (
            StructType().add("value", IntegerType()),
            {},
            "'value' has type int, not BINARY or STRING",
        ),
        (SCHEMA, {"topic": None}, "no topic is given"),
        (StructType().add("key", StringType()), {}, "'value' is missing"),
        (SCHEMA, {"queueBy": "key"}, "no column 'key'"),
    ],
)
def test_columns_that_are_wrong_are_named(
    schema: StructType, more: dict[str, str | None], words: str
) -> None:
    options = {"nameServer": "h:1", "topic": "x", **more}
    given = {name: text for name, text in options.items() if text is not None}
    with pytest.raises(BadRequest, match=words):
        stream_writer(given, schema, False)


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once"])
def test_a_write_that_nobody_answers_ends(semantics: str) -> None:
    options = {"nameServer": "127.0.0.1:1", "topic": "x", "semantics": semantics}
    writer = batch_writer(
        {**options, "sendTimeoutMs": "300", "commitTimeoutMs": "300"}, SCHEMA, False
    )
    with pytest.raises(Unavailable, match=r"no name server responds at 127.0.0.1:1"):
        writer.write(iter(table(value=[b"x"])))


def test_a_topic_that_is_not_there_is_named(kourou_cluster: MakeCluster) -> None:
    cluster = kourou_cluster(1, settings={"autoCreateTopicEnable": "false"})
    for semantics in ("exactly-once", "at-least-once"):
        with pytest.raises(KourouError, match="nope"):
            written(cluster, [b"x"], topic="nope", semantics=semantics)


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(BadRequest, match="overwritten"):
        batch_writer({"nameServer": "h:1", "topic": "x"}, SCHEMA, True)


# -- frames are filled to their limits, in the order of the rows, and no further -------------------


RECORDS_MAX, BYTES_MAX = 5, 2_000


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The sizes of the records of each frame that is sent."""
    sent: list[list[int]] = []
    real = Connections.ask

    async def ask(self: Connections, address: str, request: Any, **more: Any) -> Any:
        if isinstance(request, SendRecords):
            sent.append(np.frombuffer(request.sizes, "<u4").tolist())
        return await real(self, address, request, **more)

    monkeypatch.setattr(Connections, "ask", ask)
    monkeypatch.setattr(writers, "FRAME_RECORDS_MAX", RECORDS_MAX)
    monkeypatch.setattr(writers, "FRAME_RECORD_BYTES_MAX", BYTES_MAX)
    return sent


@pytest.mark.parametrize(
    "sizes",
    [[10], [10] * 5, [10] * 6, [600] * 7, [1_500, 1, 1_500], [3_000, 10, 10], [10, 3_000, 10]],
)
@pytest.mark.parametrize("times", [1, 3])
def test_columns_and_rows_fill_the_same_frames(
    kourou_cluster: MakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    frames: list[list[int]],
    sizes: list[int],
    times: int,
) -> None:
    """Batches of many rows go to frames as columns, small ones row by row."""
    cluster = kourou_cluster(1)
    cluster.create_topic(TOPIC, queues=2)
    options = told(cluster, semantics="at-least-once")
    rows = [b"%d" % number * size for number, size in enumerate(sizes)]
    batches = table(value=rows, queue=[number % 2 for number in range(len(rows))]) * times
    found = []
    for rows_min in (1, len(rows) + 1):
        monkeypatch.setattr(draft_columns, "ROWS_MIN", rows_min)
        done = write_partition(options, ("value", "queue"), iter(batches), ("q", 0), 0)
        assert done.counts == {"broker-a": times * len(rows)}
        found.append(list(frames))
        frames.clear()
    by_columns, by_rows = found
    assert by_columns == by_rows
    assert all(len(one) <= RECORDS_MAX for one in by_rows)
    assert all(sum(one) <= BYTES_MAX or len(one) == 1 for one in by_rows)
    for one, after in itertools.pairwise(by_rows):
        assert len(one) == RECORDS_MAX or sum(one) + after[0] > BYTES_MAX
    stored = [(message.queue_id, message.body) for message in messages(cluster)]
    assert stored == [(queue, row) for queue in (0, 1) for row in rows[queue::2] * 2 * times]
