"""Receives Spark's notifications of finished batches.

Spark calls from a thread of its own, after the batch is done; the methods must neither raise nor
block for long. The call may come after the query's next attempt has started, and does not contain
the attempt; so the run ID that the query was last started with decides.

State: soft.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kourou_spark_etl.progress import Progress, read_progress

_log = logging.getLogger("kourou.spark")


class BatchListener(StreamingQueryListener):
    """Passes on the progress of queries. `works`: by query name, called at any progress."""

    def __init__(
        self, works: Mapping[str, Callable[[], None]], heard: Callable[[Progress], None]
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
            _log.error("a finished batch could not be counted", exc_info=error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """There was no new data."""
        try:
            self._working(event.runId)
        except Exception as error:  # noqa: BLE001 - Spark would drop it silently
            _log.error("the idle state of a query could not be recorded", exc_info=error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Does nothing: the runner handles the end."""

    def _working(self, run: UUID) -> None:
        for name, last in list(self._runs.items()):
            if last == run and name in self._works:
                self._works[name]()
