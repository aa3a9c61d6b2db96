"""Counts the recent failures of filter versions.

State: soft. After a restart the counts are 0; earlier quarantines are in the broker's log.
"""

from __future__ import annotations

from collections import deque

from kourou.model.filter import FilterKey
from kourou.model.limits import FILTER_VERSIONS_MAX, FILTERS_MAX

VersionKey = tuple[FilterKey, int]

VERSIONS_KNOWN_MAX = FILTERS_MAX * FILTER_VERSIONS_MAX
"""The number of versions that a broker stores; a group could upload new failing ones forever."""


class FailureCounts:
    """Failures of each version within the last `window_ms`; `limit` is the quarantine limit."""

    def __init__(self, limit: int, window_ms: int) -> None:
        self._limit = limit
        self._window_ms = window_ms
        self._at_ms: dict[VersionKey, deque[int]] = {}

    def add(self, now_ms: int, who: VersionKey) -> bool:
        """Count a failure. True if the limit is reached."""
        found = self._at_ms.get(who)
        if found is None:
            if len(self._at_ms) >= VERSIONS_KNOWN_MAX:
                del self._at_ms[next(iter(self._at_ms))]
            found = self._at_ms[who] = deque(maxlen=self._limit)
        self._forget(now_ms, found)
        found.append(now_ms)
        return len(found) >= self._limit

    def take_back(self, at_ms: int, who: VersionKey) -> None:
        """Remove the failure of that time: the filter was not its cause."""
        found = self._at_ms.get(who)
        if found and at_ms in found:
            found.remove(at_ms)

    def clear(self, who: VersionKey) -> None:
        """Reset the count of a version."""
        self._at_ms.pop(who, None)

    def count(self, now_ms: int, who: VersionKey) -> int:
        """The current number of failures."""
        found = self._at_ms.get(who)
        if not found:
            return 0
        self._forget(now_ms, found)
        return len(found)

    def _forget(self, now_ms: int, found: deque[int]) -> None:
        while found and now_ms - found[0] >= self._window_ms:
            found.popleft()
