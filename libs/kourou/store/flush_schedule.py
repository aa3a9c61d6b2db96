"""When is it time to flush? RocketMQ's rule as a pure function of time and dirt (F097-F101).

Lives here: the rule for ASYNC_FLUSH and for the consume queues.
May not live here: flushing; SYNC_FLUSH, where a waiting sender is the reason to flush.

    every `interval_ms`, if at least `least_pages` pages are dirty
    and once `thorough_ms` have passed since the last flush, whatever little is dirty

State: soft.
"""

from __future__ import annotations

from dataclasses import dataclass

PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """How patient a flush is."""

    interval_ms: int
    least_pages: int
    thorough_ms: int


COMMIT_LOG = FlushPolicy(interval_ms=500, least_pages=4, thorough_ms=10_000)
"""flushIntervalCommitLog, flushCommitLogLeastPages, flushCommitLogThoroughInterval."""

CONSUME_QUEUE = FlushPolicy(interval_ms=1_000, least_pages=2, thorough_ms=60_000)
"""flushIntervalConsumeQueue, flushConsumeQueueLeastPages, flushConsumeQueueThoroughInterval."""


class FlushSchedule:
    """Says when a flush is due. All times are monotonic milliseconds."""

    __slots__ = ("_flushed_ms", "_looked_ms", "policy")

    def __init__(self, policy: FlushPolicy, now_ms: int) -> None:
        self.policy = policy
        self._looked_ms = now_ms
        self._flushed_ms = now_ms

    @property
    def next_look_ms(self) -> int:
        """Before this time `due` says no."""
        return self._looked_ms + self.policy.interval_ms

    def due(self, now_ms: int, dirty_bytes: int) -> bool:
        """True if a flush should start now; the caller tells `flushed` when it has ended."""
        if now_ms < self.next_look_ms:
            return False
        self._looked_ms = now_ms
        if dirty_bytes <= 0:
            return False
        if dirty_bytes >= self.policy.least_pages * PAGE_BYTES:
            return True
        return now_ms - self._flushed_ms >= self.policy.thorough_ms

    def flushed(self, now_ms: int) -> None:
        """A flush has succeeded."""
        self._flushed_ms = now_ms
