"""Tables become topics: through Spark, from rows to messages, each of them once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kourou.testing.cluster import Cluster

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def cluster(kourou_cluster: MakeCluster) -> Cluster:
    return kourou_cluster(2)


def reading(spark: Any, cluster: Cluster, topic: str) -> list[Any]:
    source = spark.read.format("kourou").options(nameServer=cluster.address, subscribe=topic)
    rows: list[Any] = source.load().collect()
    return rows


def test_a_table_is_written_and_read_back(spark: Any, cluster: Cluster) -> None:
    topic = cluster.create_topic("flights", queues=3)
    rows = spark.range(0, 500, 1, 3).selectExpr(
        "CAST(id AS STRING) AS value",
        "CONCAT('k', id) AS key",
        "IF(id % 2 = 0, 'even', 'odd') AS tags",
        "MAP('third', CAST(id % 3 AS STRING)) AS properties",
        "CAST(id % 7 AS STRING) AS order_key",
    )
    write = rows.write.format("kourou").options(nameServer=cluster.address, topic=topic)
    write.mode("append").save()
    found = reading(spark, cluster, topic)
    assert sorted(int(row.value) for row in found) == list(range(500))
    assert all(row.key == f"k{int(row.value)}" for row in found)
    assert all(row.tags == ("odd" if int(row.value) % 2 else "even") for row in found)
    assert all(f"third\x01{int(row.value) % 3}" in row.properties for row in found)
    places: dict[int, set[tuple[str, int]]] = {}
    for row in found:
        places.setdefault(int(row.value) % 7, set()).add((row.broker, row.partition))
    assert all(len(queues) == 1 for queues in places.values())


def test_a_failed_write_leaves_nothing_and_says_why(spark: Any, cluster: Cluster) -> None:
    topic = cluster.create_topic("orders", queues=2)
    rows = spark.range(0, 100, 1, 2).selectExpr("IF(id = 60, NULL, CAST(id AS STRING)) AS value")
    write = rows.write.format("kourou").options(nameServer=cluster.address, topic=topic)
    with pytest.raises(Exception, match=r"row \d+ has no value"):
        write.mode("append").save()
    assert reading(spark, cluster, topic) == []
    with pytest.raises(Exception, match="'topik' is unknown"):
        write.option("topik", "x").mode("append").save()
