"""The replication lag of one replica, as a time.

State: soft. Times are monotonic ms, positions bytes.

If a replica now has everything that the log had at an earlier report, it had kept up at that
moment. So neither a growing nor an idle log makes a healthy replica count as late.
"""

from __future__ import annotations


class Lag:
    """The lag of one replica; `kept_up_ms`: when it last had the whole log, None if never."""

    __slots__ = ("_asked_end", "_asked_ms", "kept_up_ms")

    def __init__(self) -> None:
        self.kept_up_ms: int | None = None
        self._asked_end: int | None = None
        self._asked_ms = 0

    def noted(self, now_ms: int, has: int, end: int) -> None:
        """The replica has everything below `has`, and the log ends at `end`."""
        if has >= end:
            self.kept_up_ms = now_ms
        elif self._asked_end is not None and has >= self._asked_end:
            self.kept_up_ms = self._asked_ms
        elif self._asked_end is not None:
            return  # it lacks even that: the earlier moment stays valid
        self._asked_end, self._asked_ms = end, now_ms

    def ms(self, now_ms: int) -> int | None:
        """Time since it had the whole log; None if never."""
        return None if self.kept_up_ms is None else now_ms - self.kept_up_ms
