"""Counters of each query, for /metrics and /statistics.

Spark's listener, the queries' threads and the admin page's thread use them, so there is a lock.

State: soft.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kourou.telemetry.metric_table import ETL_BOUNDS_MS
from kourou.telemetry.metrics import Family, Histogram, Labels
from kourou_spark_etl.progress import Progress
from kourou_spark_etl.supervision import QueryPhase, QueryState

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
    last: Progress | None = None


class Figures:
    """The counters of all queries of one service."""

    def __init__(self, queries: Sequence[QueryState]) -> None:
        self._queries = {query.name: query for query in queries}
        self._counts = {query.name: _Counts() for query in queries}
        self._lock = threading.Lock()

    def batch(self, done: Progress) -> None:
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
