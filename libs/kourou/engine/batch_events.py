"""What was decided about batch transactions, as facts that are kept for good.

Lives here: these events. May not live here: when one happens and what it changes
(kourou.engine.batches), their encoding (kourou.engine.events).

Format: docs/formats/control-event.md. Their aggregate is batches/QUERY.
"""

from __future__ import annotations

from kourou.engine.event_base import Count, EventBase


class BatchEventBase(EventBase, frozen=True):
    """What they have in common: the query that they are about."""

    query: str

    @property
    def aggregate(self) -> str:
        """What it changed."""
        return f"batches/{self.query}"


class BatchPrepared(BatchEventBase, frozen=True):
    """This broker has `messages` of the batch and waits for what `coordinator` decides.

    With none, it only knows now who decides about the query; `batch` is the one it was told with.
    """

    batch: Count
    coordinator: str
    messages: Count = 0


class BatchDecided(BatchEventBase, frozen=True):
    """These attempts won the partitions of the batch: from here on it is committed.

    `counts` says how many messages of theirs each broker holds.
    """

    batch: Count
    winners: dict[Count, str]
    counts: dict[str, Count]


class BatchResolved(BatchEventBase, frozen=True):
    """All that this broker had of the batch, and of those before it, is stored or discarded."""

    batch: Count


class BatchQueryForgotten(BatchEventBase, frozen=True):
    """Nobody has used the query for long, or it has come to its end."""


BatchEvent = BatchPrepared | BatchDecided | BatchResolved | BatchQueryForgotten
