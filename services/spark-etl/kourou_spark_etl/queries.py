"""Starts a query of the job file as a Spark stream.

Rows for the read model go through foreachBatch: a batch and its number are written in one
transaction, so that Spark may repeat it. Rows of a lake go through Spark's file sink, whose log
ensures the same.

Spark reports a batch once, after its commit; a crash can prevent the report. Batches for tables are
numbered in the transaction of their rows; `unreported_batches` finds those of a lake in the
checkpoint's list of commits.

State: Spark's checkpoints, in etlPath/checkpoints/QUERY.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow.parquet import ParquetFile
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kourou.clock import Clock
from kourou.errors import ConfigError, Corrupt
from kourou.model.topic import MessageQueue
from kourou.sync import Client
from kourou_spark_etl import jobs
from kourou_spark_etl.data_source import FORMAT
from kourou_spark_etl.job_file import QuerySpec
from kourou_spark_etl.jobs import PARTITIONS, flight_tables, lake
from kourou_spark_etl.lake_files import INCOMING, batch_paths
from kourou_spark_etl.progress import OBSERVED
from kourou_spark_etl.read_model.read_model import QueryBatch, ReadModel, RecordedBatch
from kourou_spark_etl.session import use_here
from kourou_spark_etl.source.arrow_rows import COLUMNS, SCHEMA_DDL


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of a group in a topic at one time: sums over the topic's queues."""

    consumer_group: str
    topic: str
    at_ms: int
    lag: int
    end_offsets: int
    consumed_offsets: int


class LagSampler:
    """Samples one cluster. Empty `groups`: all groups."""

    def __init__(self, name_servers: str, groups: Collection[str] = ()) -> None:
        self._client = Client(name_servers)
        self._client.open()
        self._groups = frozenset(groups)

    def sample(self, at_ms: int) -> list[LagSample]:
        """One sample for each group and topic. Raises KourouError if a broker does not reply."""
        admin: Any = self._client.admin
        names = sorted(self._groups) or [group.name for group in admin.groups.list()]
        found: list[LagSample] = []
        for group in names:
            found += summed(group, at_ms, _queues(admin.offsets.of(group)))
        return found

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


Queue = tuple[MessageQueue, int, int]
"""A queue, its end, and the group's offset."""


def _queues(offsets: Any) -> Iterable[Queue]:
    return [(queue, one.broker_offset, one.consumer_offset) for queue, one in offsets.items()]


def summed(group: str, at_ms: int, queues: Iterable[Queue]) -> list[LagSample]:
    """Samples by topic. A group without an offset in a queue (below 0) lags by the whole queue."""
    sums: dict[str, tuple[int, int, int]] = {}
    for queue, end, consumed in queues:
        place = min(max(consumed, 0), end)
        lag, ends, places = sums.get(queue.topic, (0, 0, 0))
        sums[queue.topic] = (lag + end - place, ends + end, places + place)
    return [LagSample(group, topic, at_ms, *sums[topic]) for topic in sorted(sums)]


LINKS = 32
"""The maximum number of trace contexts of a batch. Each is the smallest of its share of all
contexts, so memory is constant, whatever the size of the batch.
"""

SAMPLES_BACK_MS = 15 * 60_000
"""The maximum age of the previous sample that a backlog's rates are computed from."""

TRACE_PARENT = "trace_parent"
Rows = Mapping[str, DataFrame]
_DDL = dict(zip(COLUMNS, SCHEMA_DDL.split(", "), strict=True))
_UNTRACED = ("latency",)
"""Its messages are read twice, and Spark rejects two observations with the same name."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The dependencies of queries.

    `written` is called for each batch in the read model with the query and the number of rows, None
    for a repeated batch. `closing` has what must be closed when the query ends.
    """

    spark: SparkSession
    name_servers: str
    folder: Path
    read_model: ReadModel
    clock: Clock
    traced: bool = False
    written: Callable[[str, int | None], None] = lambda query, rows: None
    closing: list[Callable[[], None]] = field(default_factory=list)

    def checkpoint(self, spec: QuerySpec) -> Path:
        """The folder of a query's checkpoint."""
        return self.folder / "checkpoints" / spec.name


def lake_folder(spec: QuerySpec, root: Path) -> Path:
    """The folder of a lake; a relative path is relative to the service's folder."""
    path = spec.text("path")
    return root / (path or f"lake/{spec.name}")


def start(spec: QuerySpec, bench: Bench) -> StreamingQuery:
    """Start a query from its checkpoint. Blocks for seconds; raises what Spark raises."""
    use_here(bench.spark)
    return _JOBS[spec.job](spec, bench).start()


# -- inputs and outputs of the jobs ---------------------------------------------------------------


def _messages(spec: QuerySpec, bench: Bench, columns: Sequence[str] = COLUMNS) -> DataFrame:
    options = dict(spec.source)
    if "nameServer" not in options:
        if not bench.name_servers:
            raise ConfigError(f"query {spec.name} has no name server", hint="set namesrvAddr")
        options["nameServer"] = bench.name_servers
    traced = bench.traced and spec.job not in _UNTRACED
    wanted = [name for name in COLUMNS if name in columns or (traced and name == TRACE_PARENT)]
    reader = bench.spark.readStream.format(FORMAT).options(**options)
    messages = reader.schema(", ".join(_DDL[name] for name in wanted)).load()
    return _observed(messages) if traced else messages


def _observed(messages: DataFrame) -> DataFrame:
    """The messages, with an observation of some trace contexts in each batch."""
    context = F.col(TRACE_PARENT)
    sampled = context.endswith("1") | context.endswith("3")
    share = F.when(sampled, F.pmod(F.xxhash64(context), F.lit(LINKS)))
    least = [F.min(F.when(share == number, context)) for number in range(LINKS)]
    return messages.observe(OBSERVED, F.array(*least).alias("contexts"))


def _writer(spec: QuerySpec, bench: Bench, rows: DataFrame, mode: str) -> DataStreamWriter:
    writer = rows.writeStream.queryName(spec.name).outputMode(mode)
    writer = writer.option("checkpointLocation", str(bench.checkpoint(spec)))
    if spec.trigger_ms is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{spec.trigger_ms} milliseconds")


def _into_tables(
    spec: QuerySpec,
    bench: Bench,
    tables: Callable[[DataFrame], Rows],
    dropping: Callable[[], Mapping[str, int]] = dict,
) -> Callable[[DataFrame, int], None]:
    """The function for foreachBatch: compute a batch's rows by table, and write them."""

    def write(frame: DataFrame, batch_id: int) -> None:
        # Spark creates the query's ID before its first batch.
        query_id = checkpoint_id(bench.checkpoint(spec))
        batch = QueryBatch(spec.name, query_id, batch_id, bench.clock.now_ms())
        rows = {name: _rows(of) for name, of in tables(frame).items()}
        count = bench.read_model.write(batch, rows, dropping=dropping())
        bench.written(spec.name, count)

    return write


def _rows(frame: DataFrame) -> Iterator[Mapping[str, Any]]:
    """A small frame's rows: computed before the database is locked, read in batches."""
    table = frame.toArrow()

    def each() -> Iterable[Mapping[str, Any]]:
        for batch in table.to_batches(max_chunksize=4_096):
            yield from batch.to_pylist()

    return iter(each())


def checkpoint_id(checkpoint: Path) -> str:
    """The ID that Spark gave to a checkpoint; another ID means another history."""
    path = checkpoint / "metadata"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Metadata).id
    except (OSError, msgspec.DecodeError) as error:
        raise Corrupt(f"{path} of the checkpoint cannot be read: {error}") from error


class _Metadata(msgspec.Struct):
    id: str


# -- the jobs -------------------------------------------------------------------------------------


def _lake(spec: QuerySpec, bench: Bench) -> DataStreamWriter:
    path = lake_folder(spec, bench.folder) / INCOMING
    rows = lake(_messages(spec, bench))
    writer = _writer(spec, bench, rows, "append").format("parquet")
    return writer.partitionBy(*PARTITIONS).option("path", f"file://{path}")


def _dead_letters(spec: QuerySpec, bench: Bench) -> DataStreamWriter:
    messages = _messages(spec, bench, jobs.DEAD_LETTER_COLUMNS)
    write = _into_tables(spec, bench, lambda batch: {"dead_letters": jobs.dead_letters(batch)})
    return _writer(spec, bench, messages, "append").foreachBatch(write)


def _latency(spec: QuerySpec, bench: Bench) -> DataStreamWriter:
    window_ms = spec.period_ms("window")
    messages = _messages(spec, bench, jobs.LATENCY_COLUMNS)
    samples = jobs.latency(messages, wait=spec.text("wait"))
    write = _into_tables(
        spec,
        bench,
        lambda batch: {"latency": jobs.by_size(batch, window_ms=window_ms)},
    )
    return _writer(spec, bench, samples, "append").foreachBatch(write)


def _flights(spec: QuerySpec, bench: Bench) -> DataStreamWriter:
    delays = jobs.flights(
        _messages(spec, bench, jobs.FLIGHT_COLUMNS),
        flight_tables(bench.spark),
        window=spec.text("window"),
        watermark=spec.text("watermark"),
    )
    # Each batch contains the complete changed windows, which replace the existing rows.
    write = _into_tables(spec, bench, lambda batch: {"flight_delays": batch})
    return _writer(spec, bench, delays, "update").foreachBatch(write)


def _backlog(spec: QuerySpec, bench: Bench) -> DataStreamWriter:
    servers = spec.source.get("nameServer", bench.name_servers)
    if not servers:
        raise ConfigError(f"query {spec.name} has no name server", hint="set namesrvAddr")
    groups = [name.strip() for name in spec.text("groups").split(",") if name.strip()]
    sampler = LagSampler(servers, groups)
    bench.closing.append(sampler.close)
    # Nothing is read: Spark's rate source only triggers batches, so that this query has a
    # checkpoint, supervision and metrics like any other.
    ticks = bench.spark.readStream.format("rate").option("rowsPerSecond", 1).load()

    def tables(_: DataFrame) -> Rows:
        now_ms = bench.clock.now_ms()
        samples = [*_before(spec, bench, now_ms), *sampler.sample(now_ms)]
        frame = bench.spark.createDataFrame(
            [tuple(asdict(one).values()) for one in samples], schema=jobs.SAMPLE_DDL
        )
        return {"backlog": jobs.backlog(frame).where(F.col("at_ms") == now_ms)}

    write = _into_tables(
        spec,
        bench,
        tables,
        lambda: {"backlog": bench.clock.now_ms() - spec.period_ms("keep")},
    )
    return _writer(spec, bench, ticks, "append").foreachBatch(write)


def _before(spec: QuerySpec, bench: Bench, now_ms: int) -> list[LagSample]:
    """The last sample of each group and topic, if it is not too old."""
    known = bench.read_model.rows("backlog", spec.name, since={"at_ms": now_ms - SAMPLES_BACK_MS})
    latest: dict[tuple[str, str], LagSample] = {}
    for row in sorted(known, key=lambda row: row["at_ms"]):
        if row["at_ms"] < now_ms:
            sample = LagSample(**{name: row[name] for name in LagSample.__slots__})
            latest[sample.consumer_group, sample.topic] = sample
    return list(latest.values())


_JOBS: Mapping[str, Callable[[QuerySpec, Bench], DataStreamWriter]] = {
    "lake": _lake,
    "latency": _latency,
    "dead_letters": _dead_letters,
    "backlog": _backlog,
    "flights": _flights,
}


_log = logging.getLogger("kourou.spark")


def unreported_batches(
    checkpoint: Path, lake: Path, last: RecordedBatch | None
) -> Iterator[tuple[str, int, int]]:
    """Checkpoint ID, number and row count of each committed batch after `last`.

    Nothing if the query has never started. Rows of files that were deleted since are not counted.
    """
    commits = checkpoint / "commits"
    if not commits.is_dir():
        return
    query_id = checkpoint_id(checkpoint)
    known = last.batch_id if last is not None and last.query_id == query_id else -1
    numbers = sorted(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for number in numbers:
        if number > known:
            yield query_id, number, _rows_in(batch_paths(lake, number))


def _rows_in(paths: Iterable[Path]) -> int:
    count = 0
    for path in paths:
        try:
            with ParquetFile(path) as file:
                count += file.metadata.num_rows
        except (OSError, pa.ArrowInvalid) as error:
            _log.warning(
                "rows-uncounted: the rows of %(path)s cannot be counted: %(error)s",
                {"path": path, "error": error},
            )
    return count
