"""A rate limit for checking filter sources, because a check blocks all other requests.

In the worst known case, parsing and checking 64 KiB takes 0.45 s; a usual filter of 2 KiB takes a
few milliseconds. A service with one event loop serves no other request in the meantime, so the
limit applies to all clients together.

State: soft.
"""

from __future__ import annotations

from kourou.errors import Throttled
from kourou.model.limits import FILTER_CHECKED_BYTES_MAX, FILTER_CHECKED_BYTES_S

_MS = 1_000


class CheckAllowance:
    """For the sources that one process checks; full at startup."""

    def __init__(self) -> None:
        self._left = float(FILTER_CHECKED_BYTES_MAX)
        self._at_ms = 0

    def take(self, now_ms: int, size_bytes: int) -> None:
        """Account for a check of that size now. Raises Throttled; then the source must not be
        checked.
        """
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
