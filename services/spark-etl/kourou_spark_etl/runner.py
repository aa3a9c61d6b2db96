"""The thread of one query: starts it, waits for its end, restarts it, and stops it gracefully.

A graceful stop lets the current batch finish within the time limit, then stops the query. An
interrupted batch is run again at the next start, and still counts only once.

Spark notifies a listener of finished batches from a thread of its own, after the batch is done; the
methods must neither raise nor block for long. The call may come after the query's next attempt has
started, and does not contain the attempt; so the run ID that the query was last started with
decides.

State: soft.

The lifecycle of a query (it runs, fails, waits, and is restarted), and its counters.

    waiting -> starting -> running -> ended       (a trigger that ends by itself, or a stop)
                  |           |
                  '-----------'--> failed -> starting …

The pause doubles with each failure, from 1 s up to 60 s. It is reset when the query was seen to
work, by a finished batch or a trigger without new data: a query that makes progress is restarted
quickly, one that cannot work costs little. A successful start at Spark does not count, because
errors of a query appear in its first batch.

The counters are for /metrics and /statistics. Spark's listener, the queries' threads and the admin
page's thread use them, so there is a lock.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from kourou.clock import Clock
from kourou.errors import KourouError
from kourou.telemetry.metric_table import ETL_BOUNDS_MS
from kourou.telemetry.metrics import Family, Histogram, Labels
from kourou_spark_etl.batch_events import QueryBegan, QueryEnded, QueryFailed, short
from kourou_spark_etl.job_file import QuerySpec
from kourou_spark_etl.progress import BatchProgress, read_progress
from kourou_spark_etl.queries import Bench, start

PAUSE_MS = 1_000
PAUSE_LONGEST_MS = 60_000
ERROR_LENGTH = 2_000
"""The maximum length of an error; Spark's errors contain whole plans."""

_OF_JAVA = re.compile(
    r"at \S+\(.*\)|\.\.\. \d+ more|Caused by: [\w.$]+|(Driver stacktrace: ?)?(SQLSTATE: \w+)?"
)
"""Lines of a stack trace, which do not describe the error."""


class QueryPhase(StrEnum):
    """The phase of a query."""

    WAITING = "waiting"  # not started by the service yet
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"  # waits for its next attempt
    ENDED = "ended"
    OFF = "off"  # disabled in the job file


@dataclass(slots=True)
class QueryState:
    """The state of one query. `again_ms` is monotonic: when it will be restarted."""

    name: str
    job: str
    phase: QueryPhase = QueryPhase.WAITING
    attempts: int = 0
    failures: int = 0
    in_a_row: int = 0
    error: str = ""
    again_ms: int = 0
    seen_working: bool = False  # in this attempt

    def starting(self) -> None:
        """An attempt starts."""
        self.phase = QueryPhase.STARTING
        self.attempts += 1
        self.seen_working = False

    def running(self) -> None:
        """Spark has started it. The last error is kept until the query is seen to work."""
        self.phase = QueryPhase.RUNNING

    def progressed(self) -> None:
        """A batch is done, or there was no new data."""
        self.in_a_row = 0
        self.error = ""
        self.seen_working = True

    def failed(self, error: str, now_ms: int) -> int:
        """It has failed. Returns the pause in ms before the next attempt."""
        self.phase = QueryPhase.FAILED
        self.failures += 1
        self.error = error[:ERROR_LENGTH]
        pause = min(PAUSE_MS << min(self.in_a_row, 16), PAUSE_LONGEST_MS)
        self.in_a_row += 1
        self.again_ms = now_ms + pause
        return pause

    def ended(self) -> None:
        """It has ended without an error."""
        self.phase = QueryPhase.ENDED

    @property
    def trouble(self) -> str:
        """Why it does not work; empty if it does, or was not started yet."""
        if self.phase is QueryPhase.FAILED or (self.in_a_row and self.error):
            return f"{self.name}: {self.error or 'failed'}"
        return ""

    @property
    def unready(self) -> str:
        """Why it is not ready; empty if it was seen to work, or is not meant to run."""
        if self.phase is QueryPhase.WAITING or self.phase is QueryPhase.STARTING:
            return self.trouble or f"{self.name}: {self.phase}"
        if self.phase is QueryPhase.RUNNING and not self.seen_working:
            return self.trouble or f"{self.name}: in its first batch"
        return self.trouble


def error_line(error: BaseException) -> str:
    """An error in one line: the last relevant line of Spark's text, which is usually our message.

    Spark wraps a Python error in its own, and appends the plan of the query.
    """
    text = str(error).partition("\n== ")[0].partition("\nJVM stacktrace")[0]
    text = text.partition("\n=== ")[0]
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if _OF_JAVA.fullmatch(line) is None]
    named = [line for line in lines if line.startswith(("kourou.errors.", "kourou_spark_etl."))]
    line = (named or lines or [type(error).__name__])[-1]
    return line.partition(": ")[2] or line if named else line


# -- counters -------------------------------------------------------------------------------------

_NOT_TO_RUN = (QueryPhase.OFF, QueryPhase.ENDED)
"""Phases without the metric "running": 0 would look like a failure."""


@dataclass(slots=True)
class _Counts:
    batches: int = 0
    rows: int = 0
    written: int = 0
    late: int = 0
    repeated: int = 0
    took: Histogram = field(default_factory=lambda: Histogram(ETL_BOUNDS_MS))
    last: BatchProgress | None = None


class QueryCounters:
    """The counters of all queries of one service."""

    def __init__(self, queries: Sequence[QueryState]) -> None:
        self._queries = {query.name: query for query in queries}
        self._counts = {query.name: _Counts() for query in queries}
        self._lock = threading.Lock()

    def batch(self, done: BatchProgress) -> None:
        """Count a batch."""
        with self._lock:
            counts = self._counts[done.query]
            counts.batches += 1
            counts.rows += done.rows
            counts.late += done.late_rows
            counts.took.observe(done.took_ms)
            counts.last = done

    def written(self, query: str, rows: int | None) -> None:
        """Count the rows written to the read model; None if the batch was a repetition."""
        with self._lock:
            if rows is None:
                self._counts[query].repeated += 1
            else:
                self._counts[query].written += rows

    def families(self, base: Labels, events: int) -> Iterator[Family]:
        """The metrics of one service, except for its spans."""
        with self._lock:
            every = [
                ({"query": name, "job": state.job, **base}, state, self._counts[name])
                for name, state in self._queries.items()
            ]

            def counter(name: str, figures: Sequence[int]) -> Family:
                samples = [
                    (labels, value) for (labels, *_), value in zip(every, figures, strict=True)
                ]
                return Family.counter(name, "", samples)

            running = [
                (labels, int(state.phase is QueryPhase.RUNNING))
                for labels, state, _ in every
                if state.phase not in _NOT_TO_RUN
            ]
            lasts = [(labels, counts.last) for labels, _, counts in every]
            found = [
                Family.gauge("kourou_etl_query_running", "", running),
                counter("kourou_etl_batches_total", [one.batches for *_, one in every]),
                counter("kourou_etl_rows_total", [one.rows for *_, one in every]),
                counter("kourou_etl_rows_written_total", [one.written for *_, one in every]),
                counter("kourou_etl_rows_late_total", [one.late for *_, one in every]),
                counter("kourou_etl_batches_repeated_total", [one.repeated for *_, one in every]),
                counter("kourou_etl_failures_total", [state.failures for _, state, _ in every]),
                Family.histogram(
                    "kourou_etl_batch_latency",
                    "",
                    [(labels, counts.took) for labels, _, counts in every],
                ),
                Family.gauge(
                    "kourou_etl_state_rows",
                    "",
                    [(labels, last.state_rows if last else 0) for labels, last in lasts],
                ),
                Family.gauge(
                    "kourou_etl_state_bytes",
                    "",
                    [(labels, last.state_bytes if last else 0) for labels, last in lasts],
                ),
                Family.counter("kourou_etl_events_total", "", [(base, events)]),
            ]
        yield from found

    def statistics(self) -> list[Mapping[str, Any]]:
        """The statistics of every query in JSON form."""
        with self._lock:
            return [
                {
                    "query": name,
                    "job": state.job,
                    "phase": state.phase.value,
                    "attempts": state.attempts,
                    "failures": state.failures,
                    "error": state.error,
                    **_counted(self._counts[name]),
                }
                for name, state in self._queries.items()
            ]


def _counted(counts: _Counts) -> dict[str, Any]:
    last = counts.last
    found: dict[str, Any] = {
        "batches": counts.batches,
        "rows": counts.rows,
        "rows_written": counts.written,
        "rows_late": counts.late,
        "batches_repeated": counts.repeated,
    }
    if last is not None:
        found["last"] = {
            "batch_id": last.batch_id,
            "rows": last.rows,
            "began_ms": last.began_ms,
            "took_ms": last.took_ms,
            "end_offsets": last.end_offsets,
            "watermark": last.watermark,
            "durations_ms": dict(last.durations_ms),
        }
    return found


_log = logging.getLogger("kourou.spark")


# -- notifications of Spark -----------------------------------------------------------------------


class BatchListener(StreamingQueryListener):
    """Passes on the progress of queries. `works`: by query name, called at any progress."""

    def __init__(
        self, works: Mapping[str, Callable[[], None]], heard: Callable[[BatchProgress], None]
    ) -> None:
        self._works = works
        self._heard = heard
        self._runs: dict[str, UUID] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Spark calls this before `start` returns."""
        if event.name is not None:
            self._runs[event.name] = event.runId

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done."""
        try:
            done = read_progress(event.progress.json)
            if done.query in self._works:
                self._working(event.progress.runId)
                self._heard(done)
        except Exception as error:  # noqa: BLE001 - Spark would drop it silently
            _log.error("batch-uncounted: a finished batch could not be counted", exc_info=error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """There was no new data."""
        try:
            self._working(event.runId)
        except Exception as error:  # noqa: BLE001 - Spark would drop it silently
            _log.error(
                "idle-state-unrecorded: the idle state of a query could not be recorded",
                exc_info=error,
            )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Does nothing: the runner handles the end."""

    def _working(self, run: UUID) -> None:
        for name, last in list(self._runs.items()):
            if last == run and name in self._works:
                self._works[name]()


# -- the thread of a query ------------------------------------------------------------------------

LOOK_S = 1
"""Spark's timeouts have a resolution of 1 s."""

FINISH_S = 12.0
"""Time limit of the current batch at a stop of the service, which has 20 s in all."""

QueryEvent = QueryBegan | QueryFailed | QueryEnded
_log = logging.getLogger("kourou.spark")


class QueryRunner:
    """Runs one query until it is stopped."""

    def __init__(
        self,
        spec: QuerySpec,
        state: QueryState,
        bench: Bench,
        clock: Clock,
        notify: Callable[[QueryEvent], object],
        begin: Callable[[QuerySpec, Bench], StreamingQuery] = start,
    ) -> None:
        self._spec = spec
        self.state = state
        # Each query has its own list of things to close.
        self._bench = replace(bench, closing=[])
        self._clock = clock
        self._notify = notify
        self._begin = begin
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"query-{spec.name}", daemon=True)

    def start(self) -> None:
        """Start the thread; returns immediately."""
        self._thread.start()

    def stop(self) -> None:
        """Request the stop; returns immediately."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread, at most `timeout_s`. Returns whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _live(self) -> None:
        while not self._stop.is_set():
            pause_ms = self._attempt()
            if pause_ms is None:
                return
            self._stop.wait(pause_ms / 1_000)

    def _attempt(self) -> int | None:
        """Run the query once. Returns the pause before the next attempt in ms, or None."""
        state, name = self.state, self._spec.name
        state.starting()
        self._notify(QueryBegan(name, self._spec.job, state.attempts))
        try:
            query = self._begin(self._spec, self._bench)
            state.running()
            _log.info("query-started: query %(query)s started", {"query": name})
            self._wait(query)
        except Exception as error:  # noqa: BLE001 - Spark raises anything; other queries run on
            sentence = error_line(error)
            pause_ms = state.failed(sentence, self._clock.monotonic_ms())
            _log.error(
                "query-failed: query %(query)s failed; retry in %(retry_ms)s ms: %(error)s",
                {"query": name, "retry_ms": pause_ms, "error": sentence},
            )
            _log.debug("query-failure-traced: stack trace of the failure", exc_info=error)
            self._notify(QueryFailed(name, short(sentence), pause_ms))
            return pause_ms
        finally:
            self._close()
        state.ended()
        _log.info("query-ended: query %(query)s ended", {"query": name})
        self._notify(QueryEnded(name))
        return None

    def _wait(self, query: StreamingQuery) -> None:
        """Wait until the query ends by itself or was stopped. Raises its error if it failed."""
        while not self._stop.is_set():
            if query.awaitTermination(LOOK_S):
                return
        deadline_ms = self._clock.monotonic_ms() + int(FINISH_S * 1_000)
        batch = _batch(query)
        while query.isActive and self._clock.monotonic_ms() < deadline_ms:
            if not query.status["isTriggerActive"] or _batch(query) != batch:
                break
            query.awaitTermination(LOOK_S)
        query.stop()

    def _close(self) -> None:
        for close in self._bench.closing:
            try:
                close()
            except KourouError as error:
                _log.warning(
                    "query-client-close-failed: closing a client of query %(query)s failed: "
                    "%(error)s",
                    {"query": self._spec.name, "error": error},
                )
        self._bench.closing.clear()


def _batch(query: StreamingQuery) -> int:
    """The last finished batch; -1 before the first."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
