"""The lifecycle of a query (it runs, fails, waits, and is restarted), and its counters.

    waiting -> starting -> running -> ended       (a trigger that ends by itself, or a stop)
                  |           |
                  '-----------'--> failed -> starting …

The pause doubles with each failure, from 1 s up to 60 s. It is reset when the query was seen to
work, by a finished batch or a trigger without new data: a query that makes progress is restarted
quickly, one that cannot work costs little. A successful start at Spark does not count, because
errors of a query appear in its first batch.

The counters are for /metrics and /statistics. Spark's listener, the queries' threads and the admin
page's thread use them, so there is a lock.

State: soft.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kourou.telemetry.metric_table import ETL_BOUNDS_MS
from kourou.telemetry.metrics import Family, Histogram, Labels
from kourou_spark_etl.progress import BatchProgress

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
