"""When to flush or to write out: RocketMQ's rules as a pure function.

    every `interval_ms`, if at least `least_pages` pages are dirty
    and once `thorough_ms` have passed since the last flush, if anything is dirty
    and, unless the policy is `timed`, after every append under the same conditions, at least
    WOKEN_PAUSE_MS after the previous flush: appends in the meantime share one flush, because
    otherwise a thread would do little else

State: soft.
"""

from __future__ import annotations

from dataclasses import dataclass

PAGE_BYTES = 4096
WOKEN_PAUSE_MS = 20


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """When a flush is due; `timed`: only the clock starts one, an append never does."""

    interval_ms: int
    least_pages: int
    thorough_ms: int
    timed: bool = True


class FlushSchedule:
    """Decides when a flush is due. All times are monotonic milliseconds."""

    __slots__ = ("_flushed_ms", "_looked_ms", "_rest_until_ms", "policy")

    def __init__(self, policy: FlushPolicy, now_ms: int) -> None:
        self.policy = policy
        self._looked_ms = now_ms
        self._flushed_ms = now_ms
        self._rest_until_ms = now_ms

    @property
    def next_look_ms(self) -> int:
        """Before this time `due` returns False."""
        return max(self._looked_ms + self.policy.interval_ms, self._rest_until_ms)

    def due(self, now_ms: int, dirty_bytes: int) -> bool:
        """True if a flush should start now; the caller calls `flushed` when it has ended."""
        if now_ms < self.next_look_ms:
            return False
        self._looked_ms = now_ms
        return self._worth_it(now_ms, dirty_bytes)

    def woken(self, now_ms: int, dirty_bytes: int) -> bool:
        """True if a flush should start early because something was appended."""
        if self.policy.timed or now_ms - self._flushed_ms < WOKEN_PAUSE_MS:
            return False
        return self._worth_it(now_ms, dirty_bytes)

    def _worth_it(self, now_ms: int, dirty_bytes: int) -> bool:
        if dirty_bytes <= 0:
            return False
        if dirty_bytes >= self.policy.least_pages * PAGE_BYTES:
            return True
        return now_ms - self._flushed_ms >= self.policy.thorough_ms

    def flushed(self, now_ms: int, *, rest_ms: int = 0) -> None:
        """A flush has succeeded; the next one that the clock starts is at least `rest_ms` later."""
        self._flushed_ms = now_ms
        self._rest_until_ms = now_ms + rest_ms
