"""Decisions about batch transactions, stored as immutable events.

Format: docs/formats/control-event.md. Their aggregate is batches/QUERY.
"""

from __future__ import annotations

from kourou.events.event_base import Count, EventBase


class BatchEventBase(EventBase, frozen=True):
    """Base of all events about batch transactions of a query."""

    query: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"batches/{self.query}"


class BatchPrepared(BatchEventBase, frozen=True):
    """This broker holds `messages` of the batch and waits for the decision of `coordinator`.

    With 0 messages the event only records the coordinator of the query; `batch` is the batch of the
    request that named it.
    """

    batch: Count
    coordinator: str
    messages: Count = 0


class BatchDecided(BatchEventBase, frozen=True):
    """The batch is committed: `winners` has the attempt that counts for each partition.

    `counts` has the number of messages of these attempts that each broker holds.
    """

    batch: Count
    winners: dict[Count, str]
    counts: dict[str, Count]


class BatchResolved(BatchEventBase, frozen=True):
    """This broker stored or discarded all its messages of this batch and of earlier ones."""

    batch: Count


class BatchQueryForgotten(BatchEventBase, frozen=True):
    """The query was removed, because it ended or was unused for long."""


BatchEvent = BatchPrepared | BatchDecided | BatchResolved | BatchQueryForgotten
