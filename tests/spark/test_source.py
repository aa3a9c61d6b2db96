"""Topics and store directories as tables: through Spark, from a session to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.model.message import PullStatus
from kourou.model.topic import MessageQueue
from kourou.sync import Client
from kourou.testing.cluster import Cluster
from kourou_rigs.rows import row_of
from kourou_spark_etl.jobs import property_map, property_value
from kourou_spark_etl.source.progress import GroupProgress

GOLDEN = Path(__file__).parents[1] / "golden" / "rocketmq-4.9.8"
PLACE = ["broker", "partition", "offset"]

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def cluster(kourou_cluster: MakeCluster) -> Cluster:
    return kourou_cluster(2)


def reading(spark: Any, cluster: Cluster, **options: str) -> Any:
    return spark.read.format("kourou").options(nameServer=cluster.address, **options)


def consumed(client: Client, topic: str) -> Iterator[dict[str, Any]]:
    """All of a topic, as a pull consumer reads it."""
    consumer = client.pull_consumer()
    for queue in consumer.queues(topic):
        offset = 0
        while (pulled := consumer.pull(queue, offset, count_max=64)).status is PullStatus.FOUND:
            yield from map(row_of, pulled.messages)
            offset = pulled.next_offset


def test_rows_are_what_a_pull_consumer_reads(spark: Any, cluster: Cluster) -> None:
    topic = cluster.create_topic("orders", queues=3)
    with cluster.client() as client:
        client.send_many(topic, [f"plain {number}" for number in range(700)])
        client.send_batch(topic, ["bag 1", "bag 2"], tag="loaded")
        client.send(topic, b"", keys=["A", "B"], tag="paid", properties={"région": "nord"})
        client.send(topic, b"long " * 10_000)
        client.send(topic, b"later", delay_level=1)
        cluster.clock.advance(seconds=2)
        expected = list(consumed(client, topic))
    table = reading(spark, cluster, subscribe=topic).load().toArrow()
    rows = table.sort_by([(name, "ascending") for name in PLACE]).to_pylist()
    assert len(rows) == 705
    assert rows == expected


def test_conditions_schemas_and_properties(spark: Any, cluster: Cluster) -> None:
    topic = cluster.create_topic("orders", queues=2)
    with cluster.client() as client:
        for number in range(40):
            region = "north" if number % 4 == 0 else "south"
            client.send(topic, b"%d" % number, properties={"region": region}, tag=f"t{number % 2}")
    orders = reading(spark, cluster, subscribe=topic, minPartitions="8").load()
    assert orders.rdd.getNumPartitions() == 8
    north = orders.where(property_value("properties", "region") == "north")
    assert sorted(int(row.value) for row in north.collect()) == list(range(0, 40, 4))
    (found,) = north.limit(1).select(property_map("properties").alias("all")).collect()
    assert found.all["region"] == "north"
    assert set(found.all) == {"UNIQ_KEY", "TAGS", "region", "CLUSTER"}
    narrowed = orders.where("broker = 'broker-a' AND partition = 1 AND offset >= 2 AND offset < 5")
    assert [tuple(row) for row in narrowed.select(PLACE).collect()] == [
        ("broker-a", 1, offset) for offset in (2, 3, 4)
    ]
    assert narrowed.rdd.getNumPartitions() <= 3
    few = reading(spark, cluster, subscribePattern="ord.*", tags="t1")
    rows = few.schema("offset BIGINT, value BINARY").load().collect()
    assert sorted(int(row.value) for row in rows) == list(range(1, 40, 2))
    assert rows[0].__fields__ == ["offset", "value"]


def test_a_store_directory_with_nothing_running(spark: Any) -> None:
    reader = spark.read.format("kourou").option("subscribePattern", ".*|%RETRY%CG1")
    for name in ("store-clean", "store-live-abort"):
        counts = reader.load(str(GOLDEN / name)).groupBy("topic").count().collect()
        assert {row.topic: row["count"] for row in counts} == {
            "DefaultCluster_REPLY_TOPIC": 4,
            "TopicA": 12,
            "TopicR": 2,
        }


def test_a_stream_goes_on_from_its_checkpoint(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic("flights", queues=2)

    def run() -> list[int]:
        """All there is now; how many rows each batch had."""
        query = (
            spark.readStream.format("kourou")
            .options(
                nameServer=cluster.address,
                subscribe=topic,
                startingOffsets="earliest",
                maxOffsetsPerTrigger="30",
                group="lake",
            )
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "lake"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [batch.numInputRows for batch in query.recentProgress]

    with cluster.client() as client:
        client.send_many(topic, [b"%d" % number for number in range(50)])
        assert run() == [30, 20]
        # More queues, which the checkpoint does not know.
        client.admin.topics.create(topic, queues=4)
        for name in cluster.brokers:
            client.send(topic, b"new", queue=MessageQueue(topic, name, 3))
        client.send_many(topic, [b"%d" % number for number in range(50, 60)])
        assert sum(run()) == 12
        assert sum(run()) == 0
        told = client.admin.offsets.of("lake", topic)
        assert sum(one.consumer_offset for one in told.values()) == 62
        assert all(one.consumer_offset == one.broker_offset for one in told.values())
    lake = spark.read.parquet(str(tmp_path / "lake"))
    assert lake.count() == 62
    assert lake.select("topic", *PLACE).distinct().count() == 62


def test_a_listener_tells_brokers_at_once(spark: Any, cluster: Cluster) -> None:
    topic = cluster.create_topic("flights", queues=1)
    heard: list[int] = []
    listener = GroupProgress(
        cluster.address,
        "shown",
        names=frozenset({"shown"}),
        heard=lambda offsets: heard.append(sum(offsets.values())),
    )
    spark.streams.addListener(listener)
    try:
        with cluster.client() as client:
            client.send_many(topic, [b"x"] * 7)
            query = (
                spark.readStream.format("kourou")
                .options(nameServer=cluster.address, subscribe=topic, startingOffsets="earliest")
                .load()
                .writeStream.format("noop")
                .queryName("shown")
                .start()
            )
            query.processAllAvailable()
            while 7 not in heard:
                assert query.exception() is None
            query.stop()
            assert client.admin.offsets.lag("shown", topic) == 0
    finally:
        spark.streams.removeListener(listener)
        listener.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "orders", "bogus": "1"}, "the option 'bogus' is unknown"),
        ({"subscribe": "nope"}, "the option 'subscribe' names a topic that does not exist"),
    ],
)
def test_what_is_wrong_is_reported(
    spark: Any, cluster: Cluster, options: dict[str, str], text: str
) -> None:
    with pytest.raises(Exception, match=text):
        reading(spark, cluster, **options).load().count()


def test_a_stream_that_cannot_begin(spark: Any, cluster: Cluster) -> None:
    query = (
        spark.readStream.format("kourou")
        .options(nameServer=cluster.address, subscribe="nope")
        .load()
        .writeStream.format("noop")
        .start()
    )
    with pytest.raises(Exception, match="names a topic that does not exist"):
        query.awaitTermination()
