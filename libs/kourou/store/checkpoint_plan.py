"""How far the projections had come when a checkpoint was planned, and what it may promise."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.store.recovery_point import RecoveryPoint


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Noted by the loop's thread, then carried out by any other."""

    projected: int
    store_ms: int
    queue_count: int
    offset_total: int
    index_covered: int
    index_entries: int
    index_full_ms: int

    def point(self, *, flushed: int, indexed: int, entries_before: int) -> RecoveryPoint:
        """What a restart may rely on once log, queues and index are on disk so far.

        `entries_before`: how many entries of the index the last point relied on.
        """
        entries = self.index_entries
        if indexed < self.index_covered:  # a full disk: the index is not where the plan saw it
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
