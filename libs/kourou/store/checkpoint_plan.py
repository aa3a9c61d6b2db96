"""The progress of the projections when a checkpoint was planned, and the recovery point from it."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.store.recovery.recovery_point import RecoveryPoint


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Recorded by the event loop's thread, then carried out by any other thread."""

    projected: int
    store_ms: int
    queue_count: int
    offset_total: int
    index_covered: int
    index_entries: int
    index_full_ms: int

    def point(self, *, flushed: int, indexed: int, entries_before: int) -> RecoveryPoint:
        """The recovery point that holds once log, queues and index are on disk up to these
        positions.

        `entries_before`: the number of index entries that the previous point relied on.
        """
        entries = self.index_entries
        if indexed < self.index_covered:  # disk full: the index is not where the plan recorded it
            entries = min(entries, entries_before)
        return RecoveryPoint(
            flushed=flushed,
            projected=self.projected,
            indexed=min(indexed, flushed),
            store_ms=self.store_ms,
            queue_count=self.queue_count,
            offset_total=self.offset_total,
            index_entries=entries,
        )
