"""The thread of one query: starts it, waits for its end, restarts it, and stops it gracefully.

A graceful stop lets the current batch finish within the time limit, then stops the query. An
interrupted batch is run again at the next start, and still counts only once.

Spark notifies a listener of finished batches from a thread of its own, after the batch is done; the
methods must neither raise nor block for long. The call may come after the query's next attempt has
started, and does not contain the attempt; so the run ID that the query was last started with
decides.

State: soft.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
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
from kourou_spark_etl.batch_events import QueryBegan, QueryEnded, QueryFailed, short
from kourou_spark_etl.job_file import QuerySpec
from kourou_spark_etl.progress import BatchProgress, read_progress
from kourou_spark_etl.queries import Bench, start
from kourou_spark_etl.supervision import QueryState, error_line

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
