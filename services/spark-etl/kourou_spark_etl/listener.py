"""Spark tells of each batch; the service hears it.

Lives here: the listener. May not live here: what is made of it (kourou_spark_etl.app).

Spark calls from a thread of its own, and later than the batch was done; what comes here must
neither raise nor wait for long.

State: none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

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
    """Hands the progress of the queries named on."""

    def __init__(self, names: Collection[str], heard: Callable[[Progress], None]) -> None:
        self._names = frozenset(names)
        self._heard = heard

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """The runner knows."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done."""
        try:
            done = read_progress(event.progress.json)
            if done.query in self._names:
                self._heard(done)
        except Exception as error:  # noqa: BLE001 - Spark would drop it silently
            _log.error("a batch was done, and is not counted", exc_info=error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing is new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The runner knows."""
