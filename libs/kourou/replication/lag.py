"""Since when does a copy lack something?

State: soft. Times are monotonic ms, positions bytes.

A copy that now has all that there was when it was looked at before had kept up at that moment. So
neither a log that grows all the time nor one at rest makes a good copy late.
"""

from __future__ import annotations


class Lag:
    """Of one copy; `kept_up_ms`: when it last had all that there was, None if never."""

    __slots__ = ("_asked_end", "_asked_ms", "kept_up_ms")

    def __init__(self) -> None:
        self.kept_up_ms: int | None = None
        self._asked_end: int | None = None
        self._asked_ms = 0

    def noted(self, now_ms: int, has: int, end: int) -> None:
        """The copy has all below `has`, and the log ends at `end`."""
        if has >= end:
            self.kept_up_ms = now_ms
        elif self._asked_end is not None and has >= self._asked_end:
            self.kept_up_ms = self._asked_ms
        elif self._asked_end is not None:
            return  # not even that is there: the moment that counts stays the earlier one
        self._asked_end, self._asked_ms = end, now_ms

    def ms(self, now_ms: int) -> int | None:
        """So long ago it had all that there was; None if never."""
        return None if self.kept_up_ms is None else now_ms - self.kept_up_ms
