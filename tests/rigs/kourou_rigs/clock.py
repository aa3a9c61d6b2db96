"""A clock that a test advances.

State: soft.
"""

from __future__ import annotations


class ManualClock:
    """Wall and monotonic time under the test's control; both in milliseconds."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Monotonic time in milliseconds."""
        return self._monotonic_ms

    def advance(self, milliseconds: int) -> None:
        """Advance both clocks."""
        assert milliseconds >= 0
        self._now_ms += milliseconds
        self._monotonic_ms += milliseconds

    def step_wall(self, milliseconds: int) -> None:
        """Set the wall clock forwards or backwards; monotonic time does not change."""
        self._now_ms += milliseconds
