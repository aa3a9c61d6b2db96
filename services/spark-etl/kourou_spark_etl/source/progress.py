"""Commits the progress of a query as a group's offsets at the brokers, for operators.

The stream reader also commits when it is asked for the next batch. That is late by one trigger, and
may never happen after the last batch; the listener is called immediately.

State: soft.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kourou.errors import BadRequest, KourouError
from kourou.model.names import check_group
from kourou_spark_etl.source.network import NetworkFacts
from kourou_spark_etl.source.offsets import QueueOffsets

_log = logging.getLogger("kourou.spark")


class GroupProgress(StreamingQueryListener):
    """Commits the progress of queries for `group`: `spark.streams.addListener(GroupProgress(...))`.

    `names` selects queries by name; empty: all queries of the session. Other sources are ignored.
    Close it after it was removed.
    """

    def __init__(
        self,
        name_servers: str,
        group: str,
        *,
        names: frozenset[str] = frozenset(),
        heard: Callable[[QueueOffsets], None] | None = None,
    ) -> None:
        self._facts = NetworkFacts(name_servers, check_group(group))
        self._group = group
        self._names = names
        self._heard = heard
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to commit yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit after a batch; what brokers do not accept is committed with the next one."""
        progress = event.progress
        if self._names and progress.name not in self._names:
            return
        for source in progress.sources:
            done = offsets_in(source.endOffset)
            if done is not None:
                self._commit(done)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """There was no new data."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Everything is committed already."""

    def _commit(self, done: QueueOffsets) -> None:
        with self._lock:
            try:
                self._facts.commit(done)
            except KourouError as error:
                _log.warning(
                    "progress-commit-failed: the offsets of group %(group)s could not be "
                    "committed: %(error)s",
                    {"group": self._group, "error": error},
                )
                return
        if self._heard is not None:
            self._heard(done)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._facts.close()


def offsets_in(text: str | None) -> QueueOffsets | None:
    """The offsets in a progress report's text; None for another source."""
    if not text:
        return None
    try:
        return QueueOffsets.of_text(text)
    except BadRequest:
        return None
