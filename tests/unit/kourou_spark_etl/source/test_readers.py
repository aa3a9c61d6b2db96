"""What a source answers Spark, asked as Spark asks, without Spark."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kourou.errors import TopicNotFound, Unavailable
from kourou.model.topic import MessageQueue
from kourou.sync import Client
from kourou.testing.cluster import Cluster
from kourou_spark_etl.source.network import NetworkFacts
from kourou_spark_etl.source.offsets import OffsetSpan, QueueOffsets
from kourou_spark_etl.source.options import Edge, ReadOptions
from kourou_spark_etl.source.ranges import DataLoss, QueueRange
from kourou_spark_etl.source.readers import BatchReader, StreamReader

MakeCluster = Callable[..., Cluster]
COLUMNS = ("broker", "partition", "offset")


class Topic:
    """A topic of its own, and a stream over it."""

    def __init__(self, cluster: Cluster, client: Client, queues: int = 2) -> None:
        self.cluster = cluster
        self.client = client
        self.name = cluster.create_topic(queues=queues)
        self.readers: list[StreamReader] = []

    def options(self, **changes: Any) -> ReadOptions:
        return ReadOptions(name_servers=self.cluster.address, topics=(self.name,), **changes)

    def stream(self, **changes: Any) -> StreamReader:
        reader = StreamReader(self.options(**changes), COLUMNS)
        self.readers.append(reader)
        return reader

    def tree(self, *offsets: int) -> dict[str, Any]:
        return {self.name: {"broker-a": {str(at): one for at, one in enumerate(offsets)}}}

    def send(self, count: int, queue: int = 0) -> None:
        for _ in range(count):
            self.client.send(self.name, b"x", queue=MessageQueue(self.name, "broker-a", queue))


@pytest.fixture
def topic(kourou_broker: Cluster, kourou_client: Client) -> Iterator[Topic]:
    made = Topic(kourou_broker, kourou_client)
    yield made
    for reader in made.readers:
        reader.stop()


def read(reader: StreamReader | BatchReader, partitions: list[InputPartition]) -> int:
    """As a task does, which gets reader and partition as pickles."""
    count = 0
    for partition in partitions:
        task = pickle.loads(pickle.dumps((reader, partition)))
        count += sum(batch.num_rows for batch in task[0].read(task[1]))
    return count


def test_a_stream_starts_at_the_end_by_default(topic: Topic) -> None:
    topic.send(3)
    assert topic.stream().initialOffset() == topic.tree(3, 0)
    assert topic.stream(starting=Edge.EARLIEST).initialOffset() == topic.tree(0, 0)


def test_batches_of_a_stream(topic: Topic) -> None:
    reader = topic.stream(starting=Edge.EARLIEST, max_offsets_per_trigger=4)
    start = reader.initialOffset()
    topic.send(6, 0)
    topic.send(3, 1)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    first = reader.latestOffset(start, limit)
    assert first == topic.tree(3, 1)
    assert reader.reportLatestOffset() == topic.tree(6, 3)
    partitions = reader.partitions(start, first)
    assert partitions == [
        QueueRange(topic.name, "broker-a", 0, 0, 3),
        QueueRange(topic.name, "broker-a", 1, 0, 1),
    ]
    assert read(reader, partitions) == 4
    last = reader.latestOffset(first, ReadAllAvailable())
    assert last == topic.tree(6, 3)
    assert reader.latestOffset(last, limit) == last
    assert reader.partitions(last, last) == []


def test_available_now_ends_at_what_there_was(topic: Topic) -> None:
    topic.send(5)
    reader = topic.stream(starting=Edge.EARLIEST)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    topic.send(5)
    end = reader.latestOffset(start, ReadMaxRows(3))
    assert end == topic.tree(3, 0)
    end = reader.latestOffset(end, ReadMaxRows(3))
    assert end == topic.tree(5, 0)
    assert reader.latestOffset(end, ReadMaxRows(3)) == end


def test_queues_that_come_and_go(topic: Topic) -> None:
    reader = topic.stream(starting=Edge.EARLIEST)
    start = reader.initialOffset()
    topic.client.admin.topics.create(topic.name, queues=3)
    topic.send(4, 2)
    grown = reader.latestOffset(start, ReadAllAvailable())
    assert grown == topic.tree(0, 0, 4)
    (part,) = reader.partitions(start, grown)
    assert part == QueueRange(topic.name, "broker-a", 2, 0, 4, fresh=True)
    assert read(reader, [part]) == 4
    topic.client.admin.topics.create(topic.name, queues=1)
    topic.send(1, 0)
    assert reader.latestOffset(grown, ReadAllAvailable()) == topic.tree(1, 0, 4)


def test_progress_goes_to_the_group(topic: Topic) -> None:
    def told() -> list[int]:
        offsets = topic.client.admin.offsets.of("lake", topic.name)
        return [one.consumer_offset for one in offsets.values()]

    reader = topic.stream(starting=Edge.EARLIEST, group="lake")
    topic.send(5)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert told() == [0, 0], "nothing is processed yet"
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert told() == [5, 0]
    topic.send(2, 1)
    reader.commit(topic.tree(5, 2))
    assert told() == [5, 2]


def test_offsets_beyond_the_queue(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    topic.send(5)
    with pytest.raises(DataLoss, match="/0 has offsets 0 to 5, but the next offset to read is 9"):
        topic.stream().latestOffset(topic.tree(9, 0), ReadAllAvailable())
    lenient = topic.stream(fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, "kourou.spark"):
        assert lenient.latestOffset(topic.tree(9, 0), ReadAllAvailable()) == topic.tree(5, 0)
    assert "reading continues with the remaining messages" in caplog.text
    assert lenient.partitions(topic.tree(9, 0), topic.tree(5, 0)) == []


def test_a_broker_that_is_away_for_a_while(kourou_cluster: MakeCluster) -> None:
    cluster = kourou_cluster(1)
    with cluster.client() as client:
        topic = Topic(cluster, client)
        topic.send(5)
        reader = topic.stream(starting=Edge.EARLIEST, read_timeout_ms=3_600_000)
        start = reader.initialOffset()
        cluster.chaos.kill("broker-a")
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        cluster.chaos.restart("broker-a")
        assert reader.latestOffset(start, ReadAllAvailable()) == topic.tree(5, 0)
        reader.stop()


def test_silence_is_borne_for_so_long_as_a_read_may_take(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, **__: object) -> Any:
        raise Unavailable("nobody answers")

    reader = topic.stream(starting=Edge.EARLIEST, read_timeout_ms=3_600_000)
    start = reader.initialOffset()
    monkeypatch.setattr(NetworkFacts, "spans", silent)
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    reader._heard_ms -= 3_600_001
    with pytest.raises(Unavailable, match="nobody answers"):
        reader.latestOffset(start, ReadAllAvailable())


def test_a_stream_that_nobody_answers_ends(caplog: pytest.LogCaptureFixture) -> None:
    options = ReadOptions(name_servers="127.0.0.1:1", topics=("orders",), read_timeout_ms=1)
    reader = StreamReader(options, COLUMNS)
    with pytest.raises(Unavailable, match=r"no name server responds at 127.0.0.1:1"):
        reader.initialOffset()
    reader.stop()


def test_a_batch(topic: Topic) -> None:
    topic.send(6, 0)
    topic.send(3, 1)
    reader = BatchReader(topic.options(min_partitions=3), COLUMNS)
    partitions = reader.partitions()
    assert [str(part) for part in partitions] == [
        f"{topic.name}/broker-a/0@0 to 3",
        f"{topic.name}/broker-a/0@3 to 6",
        f"{topic.name}/broker-a/1@0 to 3",
    ]
    assert read(reader, partitions) == 9
    assert list(reader.pushFilters([EqualTo(("partition",), 1)])) == []
    assert read(reader, reader.partitions()) == 3
    assert list(reader.read(InputPartition(None))) == []


def test_a_batch_between_two_places(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    topic.send(6, 0)
    topic.send(3, 1)

    def between(start: tuple[int, int], end: tuple[int, int], **more: Any) -> list[str]:
        starting, ending = (QueueOffsets.of_tree(topic.tree(*one)) for one in (start, end))
        options = topic.options(starting=starting, ending=ending, **more)
        parts = BatchReader(options, COLUMNS).partitions()
        return [str(part).removeprefix(f"{topic.name}/broker-a/") for part in parts]

    assert between((2, 1), (5, 3)) == ["0@2 to 5", "1@1 to 3"]
    assert between((2, 1), (5, 1)) == ["0@2 to 5"]
    with pytest.raises(DataLoss, match="/0 ends at 6, the read at 9"):
        between((0, 0), (9, 3))
    with caplog.at_level(logging.WARNING, "kourou.spark"):
        between((0, 0), (9, 3), fail_on_data_loss=False)
    assert "/0 ends at 6, the read at 9" in caplog.text


def test_a_batch_of_what_retention_has_taken(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = MessageQueue(topic.name, "broker-a", 0)
    monkeypatch.setattr(NetworkFacts, "spans", lambda *_, **__: {queue: OffsetSpan(4, 6)})
    starting = QueueOffsets({queue: 1})
    with pytest.raises(DataLoss, match="/0 starts at offset 4, the read at 1"):
        BatchReader(topic.options(starting=starting), COLUMNS).partitions()
    (part,) = BatchReader(topic.options(), COLUMNS).partitions()
    assert part == QueueRange(topic.name, "broker-a", 0, 4, 6)


def test_a_stream_that_starts_where_nothing_is(topic: Topic) -> None:
    topic.send(2)
    beyond = QueueOffsets.of_tree(topic.tree(7, 0))
    with pytest.raises(DataLoss, match="/0 has offsets 0 to 2, but the next offset to read is 7"):
        topic.stream(starting=beyond).initialOffset()


def test_a_batch_of_what_is_not_there(topic: Topic) -> None:
    far = topic.stream().initialOffset()
    assert far == topic.tree(0, 0)
    with pytest.raises(TopicNotFound, match="the option 'subscribe' names a topic"):
        BatchReader(
            ReadOptions(name_servers=topic.cluster.address, topics=("nope",)), COLUMNS
        ).partitions()


def test_a_store_directory_streams_as_well() -> None:
    root = Path(__file__).parents[3] / "golden" / "rocketmq-4.9.8" / "store-clean"
    options = ReadOptions(path=root, topics=("TopicA",), starting=Edge.EARLIEST)
    reader = StreamReader(options, COLUMNS)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read(reader, reader.partitions(start, end)) == 12
    assert read(BatchReader(options, COLUMNS), BatchReader(options, COLUMNS).partitions()) == 12
    reader.stop()
