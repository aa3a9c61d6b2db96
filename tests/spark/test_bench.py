"""What `kourou bench spark` measures is really done: all ways to read, both promises, a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kourou.testing.cluster import Cluster
from kourou_bench.spark_costs import WAYS, reading_figures, stream_figures, writing_figures
from kourou_bench.spark_work import (
    SINK_PROMISES,
    fill,
    round_of_reads,
    streamed,
    table,
    written,
)

ROWS, SIZE, QUEUES = 400, 64, 2


def test_each_figure_stands_for_all_rows(
    spark: Any, kourou_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = kourou_cluster(1, storage="disk")
    topic, parquet = "bench-64", tmp_path / "rows.parquet"

    async def filled() -> None:
        async with cluster.async_client() as client:
            await fill(client, topic, ROWS, SIZE, QUEUES)

    asyncio.run(filled())
    cluster.clock.advance(seconds=2)  # it is flushed: a store directory is read as far as that
    table(spark, topic, nameServer=cluster.address).write.parquet(str(parquet))
    store = cluster.folder / "broker-a"
    reads = round_of_reads(spark, cluster.address, store, topic, parquet, ROWS)
    assert {way: one.rows for way, one in reads.items()} == dict.fromkeys(WAYS, ROWS)
    assert all(figure.value > 0 for figure in reading_figures(SIZE, [reads]))
    writes = written(spark, cluster.address, parquet, ROWS // 2, QUEUES)
    assert {kind: one.rows for kind, one in writes.items()} == dict.fromkeys(
        SINK_PROMISES, ROWS // 2
    )
    assert all(figure.value > 0 for figure in writing_figures(SIZE, writes))
    waited_ns, took_ns, batches = streamed(spark, cluster.address, tmp_path, QUEUES, 200, 0.5)
    assert len(waited_ns) == 100
    assert min(waited_ns) > 0
    assert all(figure.value > 0 for figure in stream_figures(waited_ns, took_ns, batches))
