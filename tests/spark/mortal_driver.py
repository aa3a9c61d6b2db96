"""A driver of the service's own queries that dies, or lets others die, at the points it is told.

    mortal_driver.py PLAN.json        see `Plan`

Run by test_exactly_once.py. Queries, their runners, sink, read model and compaction are the
service's; what is added here are the deaths, around seams that are there anyway: the reader and the
writer that Spark is given, a method of the commit, the read model's last statement, the manifest's
switch, and Spark's own files of progress (`spark.sql.streaming.checkpointFileManagerClass`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F

from kourou.client.session.connections import header_of
from kourou.clock import SystemClock
from kourou.eventstore.database import sqlite_url
from kourou.protocol.messages.sends import (
    BatchStepResponse,
    DecideBatch,
    PrepareBatch,
    ResolveBatch,
)
from kourou_spark_etl import lake_files
from kourou_spark_etl.data_source import FORMAT, KourouDataSource, stream_writer
from kourou_spark_etl.job_file import QuerySpec, read_jobs
from kourou_spark_etl.queries import Bench, lake_folder, start
from kourou_spark_etl.read_model.read_model import QueryBatch, ReadModel
from kourou_spark_etl.runner import QueryRunner, QueryState
from kourou_spark_etl.session import open_session, stream_session, use_here
from kourou_spark_etl.sink import writers
from kourou_spark_etl.sink.commits import BatchCommits
from kourou_spark_etl.sink.writers import StreamWriter, TaskDone
from kourou_spark_etl.source.arrow_rows import wanted_columns
from kourou_spark_etl.source.options import for_stream, read_options
from kourou_spark_etl.source.readers import StreamReader

LAKE, LETTERS, FLIGHTS, COPY = "lake", "letters", "flights", "copy"
BEGAN = "began"
LEGS = ("out", "back")
"""The copying query makes two rows of each message."""

FEW_RECORDS = 64
"""Of a frame of the sink, so that a task has sent some of its rows before its end."""

COMPACT_S = 0.5
FILE_BYTES = 1 << 30
JAVA_CLASS = "kourou.MortalFiles"
JAVA = """
package kourou;

import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;

public class MortalFiles extends FileContextBasedCheckpointFileManager {
    public MortalFiles(Path path, Configuration configuration) { super(path, configuration); }

    public void renameTempFile(Path from, Path to, boolean overwrite) {
        meet("before", to.toString());
        super.renameTempFile(from, to, overwrite);
        meet("after", to.toString());
    }

    private static void meet(String when, String path) {
        String[] death = System.getenv("KOUROU_DEATH").split(" ");
        if (death.length < 3 || !death[1].equals(when) || !path.matches(death[2])) return;
        try {
            String folder = System.getenv("KOUROU_FATE");
            for (int index = 3; index < death.length; index++)
                if (!new File(folder, death[index]).exists()) return;
            if (!new File(folder, death[0]).createNewFile()) return;
            String group = System.getenv("KOUROU_GROUP");
            new ProcessBuilder("sh", "-c", "kill -9 -" + group).start().waitFor();
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }
}
"""
FILES = {
    # Never the first batch: a query has to have begun.
    "offsets-before": "before .*/checkpoints/lake/offsets/[1-9][0-9]*",
    "offsets-after": "after .*/checkpoints/lake/offsets/[1-9][0-9]*",
    "parquet-before": "before .*/incoming/_spark_metadata/[1-9][0-9]*(\\.compact)?",
    "parquet-after": "after .*/incoming/_spark_metadata/[1-9][0-9]*(\\.compact)?",
    "resolved": "before .*/checkpoints/copy/commits/[1-9][0-9]*",
}
"""Points that are a file's renaming, in Java."""


class Plan(msgspec.Struct):
    """What a driver is to do. `first` are deaths of others, `last` is its own, after all those.

    `root` is the service's folder, `fate` one of this life; a file named as a broker, in `pids`,
    has its process id.
    """

    address: str
    jobs: str
    target: str
    root: str
    fate: str
    pids: str
    first: list[str] = []
    last: str = ""


class Fate:
    """Tells whether a point is where somebody dies now; each point once. Goes to workers, too."""

    def __init__(self, plan: Plan, group: int) -> None:
        # No Struct of this file: one does not survive being pickled by value.
        self.folder, self.pids, self.group = plan.fate, plan.pids, group
        self.first, self.last = tuple(plan.first), plan.last

    def met(self, point: str) -> bool:
        """Is it the time of this point?"""
        folder = Path(self.folder)
        if point == self.last:
            if not all((folder / one).exists() for one in self.first):
                return False
        elif point not in (*self.first, BEGAN):
            return False
        try:
            (folder / point).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def driver(self, point: str) -> None:
        """Kill the driver and its Java, if it is time."""
        if self.met(point):
            os.killpg(self.group, signal.SIGKILL)
            os._exit(1)  # a worker of Spark is in a group of its own

    def worker(self, point: str) -> None:
        """Kill this process alone."""
        if self.met(point):
            os.kill(os.getpid(), signal.SIGKILL)

    def broker(self, point: str, name: str) -> None:
        """Kill a broker."""
        if self.met(point):
            os.kill(int((Path(self.pids) / name).read_text()), signal.SIGKILL)


class MortalReader(StreamReader):
    """The source's reader. The lake's takes its broker along while it reads."""

    def __init__(self, fate: Fate, *of: Any) -> None:
        super().__init__(*of)
        self._fate = fate

    def read(self, partition: Any) -> Iterator[Any]:
        """As ever."""
        rows = super().read(partition)
        for batch in rows:
            self._fate.met(BEGAN)
            yield batch
            if self._options.group == LAKE:
                self._fate.broker("broker-reads", partition.broker)


class MortalWriter(StreamWriter):
    """The sink's writer."""

    def __init__(self, inner: StreamWriter, fate: Fate) -> None:
        super().__init__(inner._options, inner._columns)
        self._fate = fate

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """As ever, in small frames."""
        writers.FRAME_RECORDS_MAX = FEW_RECORDS

        def watched() -> Iterator[pa.RecordBatch]:
            rows = 0
            for batch in iterator:
                if rows > 4 * FEW_RECORDS:
                    self._fate.worker("worker-halves")
                rows += batch.num_rows
                yield batch

        done = super().write(watched())
        if done.batch and done.rows:
            self._fate.driver("halves")
        return done

    def commit(self, messages: list[Any], batchId: int) -> None:
        """As ever; Spark calls it in a process of its own."""
        mortal_commits(self._fate)
        super().commit(messages, batchId)


class MortalReadModel(ReadModel):
    """The read model, before and after its commit."""

    fate: Fate

    def write(self, batch: QueryBatch, *of: Any, **more: Any) -> int | None:
        """As ever."""
        count = super().write(batch, *of, **more)
        if batch.query == LETTERS and count:
            self.fate.driver("sql-after")
        return count

    def _number(self, connection: Any, batch: QueryBatch, count: int) -> None:
        super()._number(connection, batch, count)
        if batch.query == LETTERS and count:
            self.fate.driver("sql-before")


def mortal_commits(fate: Fate) -> None:
    """The steps of a sink's commit, from now on in this process."""
    commits: Any = BatchCommits
    if getattr(commits, "mortal", False):
        return
    commits.mortal = True
    ask_broker, resolve_at, ask = (
        BatchCommits._ask_broker,
        BatchCommits._resolve_at,
        BatchCommits._ask,
    )
    names: dict[int, str] = {}

    async def asked_broker(self: Any, name: str, request: Any, body: bytes) -> Any:
        if isinstance(request, PrepareBatch):
            fate.broker("broker-halves", name)
        if isinstance(request, DecideBatch):
            fate.driver("decide-before")
        reply = await ask_broker(self, name, request, body)
        if isinstance(request, DecideBatch):
            fate.driver("decide-after")
        return reply

    async def resolved_at(self: Any, name: str, *of: Any) -> None:
        names[id(self)] = name
        await resolve_at(self, name, *of)

    async def asked(self: Any, address: str, request: Any, body: bytes = b"") -> Any:
        reply = await ask(self, address, request, body)
        # A step is done, and there is more.
        if isinstance(request, ResolveBatch) and header_of(reply, BatchStepResponse).left:
            fate.broker("broker-resolve", names[id(self)])
            fate.driver("resolve-half")
        return reply

    commits._ask_broker, commits._resolve_at, commits._ask = asked_broker, resolved_at, asked


def mortal_compaction(fate: Fate) -> None:
    """The lake's switch to files that were merged."""
    write = lake_files._write_manifest

    def written(folder: Path, manifest: Any) -> None:
        fate.driver("compact-before")
        write(folder, manifest)
        fate.driver("compact-after")

    lake_files._write_manifest = written


def mortal_source(fate: Fate) -> type[KourouDataSource]:
    """`format("kourou")` with the reader and the writer above."""

    class MortalSource(KourouDataSource):
        def streamReader(self, schema: Any) -> Any:
            return MortalReader(
                fate, for_stream(read_options(self.options)), wanted_columns(schema)
            )

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            inner = stream_writer(self.options, schema, overwrite)
            assert isinstance(inner, StreamWriter)
            return MortalWriter(inner, fate)

    return MortalSource


def session(plan: Plan, fate: Fate) -> Any:
    """The service's session, whose files of progress are mortal."""
    classes = Path(plan.root) / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    death = [plan.last, *FILES[plan.last].split(" "), *plan.first] if plan.last in FILES else []
    os.environ["KOUROU_DEATH"] = " ".join(death)
    os.environ["KOUROU_FATE"] = plan.fate
    os.environ["KOUROU_GROUP"] = str(fate.group)
    spark = open_session(
        "mortal",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "spark.scheduler.mode": "FAIR",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
            "spark.sql.streaming.fileSink.log.compactInterval": "3",
            "spark.sql.streaming.fileSink.log.cleanupDelay": "1",
            "spark.sql.streaming.checkpointFileManagerClass": JAVA_CLASS,
            "spark.driver.extraClassPath": str(classes),
        },
    )
    target = classes / f"{JAVA_CLASS.replace('.', '/')}.class"
    if not target.exists():
        # Spark has a compiler of its own aboard, for the code that it makes of queries.
        compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(JAVA)
        target.parent.mkdir(exist_ok=True)
        unfinished = target.with_suffix(".tmp")
        unfinished.write_bytes(bytes(compiler.getBytecodes()[JAVA_CLASS]))
        unfinished.rename(target)
    return spark


def own(bench: Bench, fate: Fate) -> Bench:
    """The same in a session of its own, as the service gives each query one."""
    spark = stream_session(bench.spark)
    spark.dataSource.register(mortal_source(fate))
    return replace(bench, spark=spark)


def copying(spec: QuerySpec, bench: Bench, target: str) -> Any:
    """From topic to topic, two rows of each message."""
    use_here(bench.spark)
    options = {**spec.source, "nameServer": bench.name_servers}
    rows = bench.spark.readStream.format(FORMAT).schema("value BINARY").options(**options).load()
    legs = F.explode(F.array(*map(F.lit, LEGS)))
    twice = rows.select(F.col("value").cast("string").alias("of"), legs.alias("leg"))
    writer = twice.select(F.concat_ws("#", "of", "leg").alias("value")).writeStream
    writer = writer.queryName(spec.name).format(FORMAT)
    writer = writer.option("checkpointLocation", str(bench.checkpoint(spec)))
    writer = writer.options(nameServer=bench.name_servers, topic=target)
    if spec.trigger_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{spec.trigger_ms} milliseconds").start()


def main() -> None:
    """Run the queries until they have ended, or one of the points is met."""
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    fate = Fate(plan, os.getpgid(0))
    root, clock = Path(plan.root), SystemClock()
    mortal_compaction(fate)
    MortalReadModel.fate = fate
    model = MortalReadModel.open(sqlite_url(root / "read-model.db"))
    spark = session(plan, fate)
    bench = Bench(spark, plan.address, root, model, clock)
    specs = read_jobs(plan.jobs)
    runners = [
        QueryRunner(
            spec,
            QueryState(spec.name, spec.job),
            own(bench, fate),
            clock,
            lambda event: sys.stderr.write(f"{event}\n"),
            begin=start
            if spec.name != COPY
            else lambda spec, bench: copying(spec, bench, plan.target),
        )
        for spec in specs
    ]
    for runner in runners:
        runner.start()
    lakes = [lake_folder(spec, root) for spec in specs if spec.name == LAKE]

    def compacted() -> None:
        for lake in lakes:
            lake_files.compact(lake, file_bytes=FILE_BYTES, grace_ms=0, now_ms=clock.now_ms())

    pause = threading.Event()
    while not all(runner.join(0) for runner in runners):
        compacted()
        pause.wait(COMPACT_S)
    compacted()
    spark.stop()
    model.close()


if __name__ == "__main__":
    # Classes of this file go to workers by value: they cannot import it.
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules["__main__"])
    main()
