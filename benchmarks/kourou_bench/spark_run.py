"""`kourou bench spark`: starts a cluster and a Spark session and measures in a fixed order.

Spark is imported only when needed, because `kourou` also works without the extra.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kourou.client.client import Client
from kourou.errors import ConfigError
from kourou.service.lifecycle import new_event_loop
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.os_processes import peak_bytes, resident_bytes
from kourou_bench.figures import Figure
from kourou_bench.spark_costs import (
    memory_figures,
    reading_figures,
    stream_figures,
    writing_figures,
)
from kourou_bench.spark_work import fill, round_of_reads, streamed, table, written

SIZES = (128, 1_024)


@dataclass(frozen=True, slots=True)
class SparkBench:
    """The parameters; printed with every result.

    `messages` messages of each of `sizes` are read in `rounds` rounds, after one that is not
    counted, and at most `sink_rows` of them are written. Then a stream of `rate` events per second
    runs for `seconds`.
    """

    messages: int = 1_000_000
    sizes: tuple[int, ...] = SIZES
    rounds: int = 3
    sink_rows: int = 200_000
    rate: int = 1_000
    seconds: float = 20.0
    queues: int = 4
    master: str = "local[2]"

    def __post_init__(self) -> None:
        """Raises ConfigError for parameters that would measure nothing."""
        if self.messages < self.queues:
            raise ConfigError(f"--messages {self.messages} is too few; use at least {self.queues}")
        if not self.master.startswith("local"):
            raise ConfigError(f"--master {self.master}: only local[N] is allowed")


def run_spark_bench(settings: SparkBench, *, as_json: bool) -> int:
    """Measure and print; raises ConfigError if Java or the extra `spark` is missing."""
    check_spark()
    record = {"kind": "spark", **asdict(settings)}
    if not as_json:
        print(heading(settings))
    for figure in _measured(settings):
        print(figure.as_json(record) if as_json else figure.as_text(), flush=True)
    return 0


def check_spark() -> None:
    """Raises ConfigError, with the command to type, if Spark cannot start."""
    from kourou_spark_etl.machine import check_machine

    check_machine()


def heading(settings: SparkBench) -> str:
    """A line that describes what is measured."""
    sizes = " and ".join(f"{size:,}" for size in settings.sizes)
    return (
        f"spark: {settings.messages:,} messages of {sizes} bytes in {settings.queues} queues, "
        f"{settings.rounds} rounds; {settings.rate:,} events/s for {settings.seconds:g} s; "
        f"a temporary cluster, Spark on {settings.master}"
    )


def _measured(settings: SparkBench) -> Iterator[Figure]:
    with ExitStack() as stack:
        # Java removes its own temporary files when it exits, which is after this process.
        made = tempfile.TemporaryDirectory(prefix="kourou-bench-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        cluster = stack.enter_context(LocalCluster(folder / "cluster", ClusterSettings()))
        spark = stack.enter_context(_session(folder, settings.master))
        for size in settings.sizes:
            yield from _of_size(cluster, spark, folder, size, settings)
        yield from stream_figures(
            *streamed(
                spark,
                cluster.address,
                folder,
                settings.queues,
                settings.rate,
                settings.seconds,
            )
        )
        java = int(spark.sparkContext._gateway.proc.pid)
        yield from memory_figures(
            peak_bytes(java),
            peak_bytes(os.getpid()),
            resident_bytes(java) - resident_bytes(java, alone=True),
        )


@contextmanager
def _session(folder: Path, master: str) -> Iterator[Any]:
    from kourou_spark_etl.session import open_session

    with warnings.catch_warnings():
        # PySpark warns about versions of other packages when it starts.
        warnings.simplefilter("ignore")
        spark = open_session(
            "kourou-bench",
            master=master,
            settings={
                "spark.local.dir": str(folder / "spark"),
                "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
            },
        )
    try:
        yield spark
    finally:
        spark.stop()


def _of_size(
    cluster: LocalCluster, spark: Any, folder: Path, size: int, settings: SparkBench
) -> Iterator[Figure]:
    topic = f"bench-{size}"
    parquet = folder / f"{topic}.parquet"
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_filled(cluster.address, topic, size, settings))
    table(spark, topic, nameServer=cluster.address).write.parquet(str(parquet))

    def rounds() -> Iterator[Any]:
        for _ in range(1 + settings.rounds):
            yield round_of_reads(
                spark,
                cluster.address,
                cluster.store_folder(0),
                topic,
                parquet,
                settings.messages,
            )

    # The first round is skipped, because Java compiles code in it.
    yield from reading_figures(size, list(rounds())[1:])
    rows = min(settings.messages, settings.sink_rows)
    yield from writing_figures(
        size, written(spark, cluster.address, parquet, rows, settings.queues)
    )


async def _filled(address: str, topic: str, size: int, settings: SparkBench) -> None:
    async with Client(address) as client:
        await fill(client, topic, settings.messages, size, settings.queues)
