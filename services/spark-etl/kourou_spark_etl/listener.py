"""Spark tells of each batch; the service hears it.

Spark calls from a thread of its own, and later than the batch was done; what comes here must
neither raise nor wait for long. Later means: perhaps when the query's next attempt has begun, of
which it says nothing; so the run counts that each query was last started as.

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
    """Hands the progress of queries on. `works`: by name, whom to tell that the query works."""

    def __init__(
        self, works: Mapping[str, Callable[[], None]], heard: Callable[[Progress], None]
    ) -> None:
        self._works = works
        self._heard = heard
        self._runs: dict[str, UUID] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Comes before `start` returns."""
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
        """Nothing is new."""
        try:
            self._working(event.runId)
        except Exception as error:  # noqa: BLE001 - Spark would drop it silently
            _log.error("the idle state of a query could not be recorded", exc_info=error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The runner knows."""

    def _working(self, run: UUID) -> None:
        for name, last in list(self._runs.items()):
            if last == run and name in self._works:
                self._works[name]()
