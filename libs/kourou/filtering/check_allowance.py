"""How many sources of filters may be checked, since checking one keeps everybody else waiting.

The worst 64 KiB that anybody found take 0.45 s of a parser's and the rules' time, a usual filter
of 2 KiB some milliseconds. A service of one loop answers nobody else meanwhile, so what everybody
may ask of it is bounded for all together.

State: soft.
"""

from __future__ import annotations

from kourou.errors import Throttled
from kourou.model.limits import FILTER_CHECKED_BYTES_MAX, FILTER_CHECKED_BYTES_S

_MS = 1_000


class CheckAllowance:
    """For the sources that one process checks; full at its start."""

    def __init__(self) -> None:
        self._left = float(FILTER_CHECKED_BYTES_MAX)
        self._at_ms = 0

    def take(self, now_ms: int, size_bytes: int) -> None:
        """A source of that size is to be checked now. Raises Throttled; then it must not be."""
        passed_ms = max(0, now_ms - self._at_ms)
        left = self._left + passed_ms * FILTER_CHECKED_BYTES_S / _MS
        self._left, self._at_ms = min(left, FILTER_CHECKED_BYTES_MAX), now_ms
        if size_bytes > self._left:
            raise Throttled(
                f"more than {FILTER_CHECKED_BYTES_MAX} bytes of new filters arrived at "
                f"once; {FILTER_CHECKED_BYTES_S} bytes are checked per second",
                hint="filters that were checked before are not checked again",
            )
        self._left -= size_bytes
