"""How far a query has come, for operators: the offsets of its group at the brokers.

The stream reader tells brokers, too, when it is asked for the next batch. That is late by one
trigger, and after the last batch it may never come; the listener hears at once.

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
from kourou_spark_etl.source.offsets import Offsets

_log = logging.getLogger("kourou.spark")


class GroupProgress(StreamingQueryListener):
    """Commits for `group` what queries have done: `spark.streams.addListener(GroupProgress(...))`.

    `names` are the queries meant, by their names; none means all of the session. Sources of another
    kind are passed over. Close it when it was removed.
    """

    def __init__(
        self,
        name_servers: str,
        group: str,
        *,
        names: frozenset[str] = frozenset(),
        heard: Callable[[Offsets], None] | None = None,
    ) -> None:
        self._facts = NetworkFacts(name_servers, check_group(group))
        self._group = group
        self._names = names
        self._heard = heard
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is done yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done: tell the brokers. What they do not take is told with the next one."""
        progress = event.progress
        if self._names and progress.name not in self._names:
            return
        for source in progress.sources:
            done = offsets_in(source.endOffset)
            if done is not None:
                self._commit(done)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing is new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """All that was done was told."""

    def _commit(self, done: Offsets) -> None:
        with self._lock:
            try:
                self._facts.commit(done)
            except KourouError as error:
                _log.warning(
                    "the offsets of group %s could not be committed: %s", self._group, error
                )
                return
        if self._heard is not None:
            self._heard(done)

    def close(self) -> None:
        """End all conversations."""
        with self._lock:
            self._facts.close()


def offsets_in(text: str | None) -> Offsets | None:
    """The offsets in a progress report's text; None for those of another source."""
    if not text:
        return None
    try:
        return Offsets.of_text(text)
    except BadRequest:
        return None
