"""The Spark service process: connects Spark, the queries, the databases and the admin pages.

Java is a child process and ends with this process, however it ends: the Py4J gateway exits when its
input pipe is closed. If Java dies, this process ends, too, and has to be restarted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kourou.clock import Clock, SystemClock
from kourou.errors import ConfigError, Corrupt, KourouError, Unavailable
from kourou.eventstore.database import with_password
from kourou.eventstore.event_store import EventStore
from kourou.service.access_metrics import open_family
from kourou.service.admin_http import AdminHttp, AdminPages
from kourou.service.entry import run_from_arguments
from kourou.settings.sources import render
from kourou.store.real_disk import RealDisk, RealLock
from kourou.telemetry.metrics import expose
from kourou.telemetry.tracing_setup import start_export, tracing_options
from kourou_spark_etl.batch_events import BatchEvents, BatchWritten
from kourou_spark_etl.config import EtlSettings
from kourou_spark_etl.job_file import QuerySpec, load_job_file
from kourou_spark_etl.machine import check_machine
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.read_model.read_model import QueryBatch, ReadModel, ask, list_tables
from kourou_spark_etl.runner import QueryCounters, QueryPhase, QueryState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kourou_spark_etl.progress import BatchSpans
    from kourou_spark_etl.runner import QueryRunner
    from kourou_spark_etl.source.progress import GroupProgress

_log = logging.getLogger("kourou.spark")

SERVICE = "kourou-spark-etl"
JOIN_S = 16.0
WATCH_S = 1.0
_TABLES = "/tables"
LOCK_FILE = "service.lock"


PRIVATE, SHARED = 0o700, 0o777
"""The modes of a new `etlPath`, less what the umask takes away."""


class SparkEtlService:
    """Implements kourou.service.lifecycle.Service."""

    name = "spark-etl"

    def __init__(self, settings: EtlSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._text = render(settings, explained=False)
        self._specs: dict[str, QuerySpec] = {
            spec.name: spec for spec in load_job_file(settings.wanted_job_file)
        }
        self._states = [QueryState(spec.name, spec.job) for spec in self._specs.values()]
        self._by_name = {state.name: state for state in self._states}
        self._counters = QueryCounters(self._states)
        self._read_model: ReadModel | None = None
        self._events: BatchEvents | None = None
        self._spans: BatchSpans | None = None
        self._admin: AdminHttp | None = None
        self._lock: RealLock | None = None
        self._spark: SparkSession | None = None
        self._groups: list[GroupProgress] = []
        self._runners: list[QueryRunner] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._fail: Callable[[BaseException], None] = lambda error: None
        self._serving = False

    # -- startup and shutdown -----------------------------------------------------------------

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        """Open the databases, bind the admin port, and start Java, which takes the longest."""
        self._fail = fail
        check_machine()
        settings = self._settings
        self._claim(settings.folder)
        self._spans = self._traced()
        await asyncio.to_thread(self._open_databases)
        if settings.admin_enabled:
            self._admin = AdminHttp(
                settings.admin_host, settings.admin_port, self._pages(), settings.http_tls
            )
            await self._admin.start()
        self._spark = await asyncio.to_thread(self._open_session)

    def _claim(self, folder: Path) -> None:
        """Lock the folder: a second service on it would write the same checkpoints.

        A new one is for this user only, unless executors of a cluster write there, too.
        """
        alone = self._settings.master.startswith("local")
        folder.mkdir(PRIVATE if alone else SHARED, parents=True, exist_ok=True)
        try:
            self._lock = RealDisk().lock(folder / LOCK_FILE)
        except BlockingIOError:
            raise ConfigError(
                f"another Spark service uses {folder}; nothing was changed",
                hint="stop it first (kourou spark-etl stop), or set another folder: --set "
                "etlPath=FOLDER",
            ) from None

    def _open_databases(self) -> None:
        settings = self._settings
        self._read_model = ReadModel.open(
            with_password(settings.read_model, settings.read_model_password_file)
        )
        store = EventStore.open(
            with_password(settings.event_store, settings.event_store_password_file)
        )
        self._events = BatchEvents(store, self._clock)
        self._note_unreported()
        missing = self._events.catch_up(self._read_model.batches())
        if missing:
            _log.info(
                "batches-recovered: %(batches)s batches were recorded as events, which a crash had "
                "prevented",
                {"batches": missing},
            )

    def _note_unreported(self) -> None:
        """Record the lake batches that Spark committed but could not report before a crash."""
        from kourou_spark_etl.queries import lake_folder, unreported_batches

        assert self._read_model is not None
        folder = self._settings.folder
        for spec in self._specs.values():
            if spec.kind.tables:
                continue  # these are numbered in the transaction of their rows
            last = self._read_model.last_batch(spec.name)
            lake = lake_folder(spec, folder)
            checkpoint = folder / "checkpoints" / spec.name
            try:
                for query_id, number, rows in unreported_batches(checkpoint, lake, last):
                    batch = QueryBatch(spec.name, query_id, number, self._clock.now_ms())
                    self._read_model.note(batch, rows)
            except (OSError, Corrupt) as error:  # the query itself will report it
                _log.warning(
                    "committed-batches-unknown: committed batches of query %(query)s cannot be "
                    "looked up: %(error)s",
                    {"query": spec.name, "error": error},
                )

    def _open_session(self) -> SparkSession:
        os.environ.update(self._settings.curve_environment)
        # Imported here, because showing settings or the list of queries needs no Spark.
        from kourou_spark_etl.session import open_session

        # It logs a line for every call from Java.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        settings = self._settings
        spark = open_session(
            SERVICE,
            master=settings.master,
            settings=settings.session_settings,
            class_archive=settings.class_archive,
        )
        return spark

    def _session_of(self, spec: QuerySpec) -> SparkSession:
        """The session of one query, with listeners for its batches."""
        from kourou_spark_etl.runner import BatchListener
        from kourou_spark_etl.session import stream_session
        from kourou_spark_etl.source.progress import GroupProgress

        assert self._spark is not None
        spark = stream_session(self._spark)
        progressed = {spec.name: self._by_name[spec.name].progressed}
        spark.streams.addListener(BatchListener(progressed, self._heard))
        group = spec.source.get("group")
        servers = spec.source.get("nameServer", self._settings.name_servers or "")
        if group and servers:
            follower = GroupProgress(servers, group, names=frozenset({spec.name}))
            self._groups.append(follower)
            spark.streams.addListener(follower)
        return spark

    async def serve(self) -> Mapping[str, str]:
        """Start the queries. /readyz reports whether they work."""
        from kourou_spark_etl.queries import Bench
        from kourou_spark_etl.runner import QueryRunner

        assert self._spark is not None
        assert self._read_model is not None
        assert self._events is not None
        bench = Bench(
            self._spark,
            self._settings.name_servers or "",
            self._settings.folder,
            self._read_model,
            self._clock,
            traced=self._spans is not None,
            written=self._counters.written,
        )
        for spec in self._specs.values():
            state = self._by_name[spec.name]
            if not spec.enabled:
                state.phase = QueryPhase.OFF
                continue
            own = replace(bench, spark=await asyncio.to_thread(self._session_of, spec))
            runner = QueryRunner(spec, state, own, self._clock, self._events.note)
            self._runners.append(runner)
            runner.start()
            if spec.job == "lake":
                self._tasks.append(asyncio.create_task(self._compact(spec)))
        self._tasks.append(asyncio.create_task(self._watch_java()))
        self._serving = True
        return {} if self._admin is None else {"admin": self._admin.url}

    def open_because(self) -> str:
        """Why everybody may read rows of tables: its pages need no credentials."""
        proved = self._settings.proves_readers
        return "" if self._admin is None or proved else "its pages with rows need no credentials"

    async def drain(self) -> None:
        """Let each query finish its current batch, then stop it."""
        self._serving = False
        for runner in self._runners:
            runner.stop()
        joined = [asyncio.to_thread(runner.join, JOIN_S) for runner in self._runners]
        await asyncio.gather(*joined)

    async def stop(self) -> None:
        """Stop Java and close everything."""
        self._serving = False
        for task in self._tasks:
            task.cancel()
        for runner in self._runners:
            runner.stop()
        if self._admin is not None:
            await self._admin.stop()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for follower in self._groups:
            follower.close()
        if self._spark is not None:
            self._spark.stop()
        if self._events is not None:
            self._events.close()
        if self._read_model is not None:
            self._read_model.close()
        if self._spans is not None:
            self._spans.close()
        if self._lock is not None:
            self._lock.release()

    # -- background tasks ---------------------------------------------------------------------

    async def _compact(self, spec: QuerySpec) -> None:
        """Compact a lake's small files periodically."""
        from kourou_spark_etl.lake_files import compact
        from kourou_spark_etl.queries import lake_folder

        folder = lake_folder(spec, self._settings.folder)
        while True:
            await asyncio.sleep(spec.period_ms("compact") / 1_000)
            try:
                done = await asyncio.to_thread(
                    compact,
                    folder,
                    file_bytes=spec.number("file_mib") << 20,
                    grace_ms=spec.period_ms("grace"),
                    now_ms=self._clock.now_ms(),
                )
            except (OSError, Corrupt) as error:
                _log.error(
                    "lake-compaction-failed: compacting lake %(lake)s failed: %(error)s",
                    {"lake": folder, "error": error},
                )
                continue
            if done.made or done.deleted:
                _log.info(
                    "lake-compacted: compacted lake %(lake)s: %(merged)s files merged into "
                    "%(made)s, %(deleted)s files deleted",
                    {
                        "lake": folder,
                        "merged": done.merged,
                        "made": done.made,
                        "deleted": done.deleted,
                    },
                )

    async def _watch_java(self) -> None:
        """Fail the service when Java ends, because it cannot be restarted within this process."""
        assert self._spark is not None
        process = getattr(self._spark.sparkContext._gateway, "proc", None)
        while process is not None:
            if process.poll() is not None:
                self._fail(
                    Unavailable(f"Spark's Java process ended with exit code {process.returncode}")
                )
                return
            await asyncio.sleep(WATCH_S)

    def _heard(self, done: BatchProgress) -> None:
        """Process the end of a batch; called on one of Spark's threads."""
        assert self._events is not None
        assert self._read_model is not None
        self._counters.batch(done)
        spec = self._specs[done.query]
        trace_id = ""
        if self._spans is not None and done.rows:
            trace_id = self._spans.batch(done, spec.job)
        rows = done.rows
        try:
            if not spec.kind.tables:
                batch = QueryBatch(done.query, done.query_id, done.batch_id, self._clock.now_ms())
                self._read_model.note(batch, done.rows)
            else:
                written = self._read_model.last_batch(done.query)
                if written is not None and written.batch_id == done.batch_id:
                    rows = written.rows
            if self._events.behind:
                self._events.catch_up(self._read_model.batches())
        except KourouError as error:
            _log.warning(
                "batch-unrecorded: batch %(batch)s of query %(query)s is not recorded: %(error)s",
                {"batch": done.batch_id, "query": done.query, "error": error},
            )
            return  # its event is written with the next one's, in order
        event = BatchWritten(done.query, done.query_id, done.batch_id, rows)
        self._events.note(event, trace_id=trace_id)

    def _traced(self) -> BatchSpans | None:
        options = tracing_options(
            os.environ,
            service_name=SERVICE,
            endpoint=self._settings.trace_otlp_endpoint or "",
        )
        if options is None:
            return None
        from kourou_spark_etl.progress import BatchSpans

        return BatchSpans(start_export(options))

    # -- pages --------------------------------------------------------------------------------

    def _pages(self) -> AdminPages:
        return AdminPages(
            healthy=lambda: "",
            ready=self._unready,
            metrics=self._metrics,
            config=lambda: self._text,
            statistics=self._statistics,
            questions=self._question,
        )

    def _unready(self) -> str:
        if not self._serving:
            return "not serving"
        return "; ".join(reason for state in self._states if (reason := state.unready))

    def _metrics(self) -> bytes:
        base = {"node_type": self.name}
        events = 0 if self._events is None else self._events.written
        return expose(
            [
                *self._counters.families(base, events),
                open_family(base, self.open_because()),
                *(() if self._spans is None else self._spans.families(base)),
            ]
        )

    def _statistics(self) -> Mapping[str, Any]:
        return {
            "master": self._settings.master,
            "job_file": str(self._settings.job_file),
            "queries": self._counters.statistics(),
        }

    async def _question(self, path: str, question: Mapping[str, str]) -> Any:
        if self._read_model is None:
            return None
        database = self._read_model.database
        if path.rstrip("/") == _TABLES:
            return await asyncio.to_thread(list_tables, database)
        folder, _, name = path.rpartition("/")
        if folder != _TABLES:
            return None
        return await asyncio.to_thread(ask, database, name, question)


def run(argv: Sequence[str], called_as: str = "kourou") -> int:
    """Run the service until it receives a stop signal. Returns the exit code (0, 2, 70 or 75)."""
    return run_from_arguments(
        SparkEtlService.name,
        "Kourou's pipeline on Spark: runs the queries of a job file.",
        argv,
        EtlSettings,
        SparkEtlService,
        called_as=called_as,
    )
