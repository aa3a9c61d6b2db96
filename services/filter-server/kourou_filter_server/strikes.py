"""How often a filter did what a filter must not do, lately.

State: soft. A filter server that starts again counts from none; what it found before is in the
broker's log, as the quarantine of a version.
"""

from __future__ import annotations

from collections import deque

from kourou.model.filter import FilterKey
from kourou.model.limits import FILTER_VERSIONS_MAX, FILTERS_MAX

VersionKey = tuple[FilterKey, int]

VERSIONS_KNOWN_MAX = FILTERS_MAX * FILTER_VERSIONS_MAX
"""As many as a broker has; a group may upload, and strike with, new ones for ever."""


class Strikes:
    """Strikes of every version within the last `window_ms`; `limit` of them are too many."""

    def __init__(self, limit: int, window_ms: int) -> None:
        self._limit = limit
        self._window_ms = window_ms
        self._at_ms: dict[VersionKey, deque[int]] = {}

    def add(self, now_ms: int, who: VersionKey) -> bool:
        """One more; True if that is one too many."""
        found = self._at_ms.get(who)
        if found is None:
            if len(self._at_ms) >= VERSIONS_KNOWN_MAX:
                del self._at_ms[next(iter(self._at_ms))]
            found = self._at_ms[who] = deque(maxlen=self._limit)
        self._forget(now_ms, found)
        found.append(now_ms)
        return len(found) >= self._limit

    def take_back(self, at_ms: int, who: VersionKey) -> None:
        """What happened then was not the filter's fault."""
        found = self._at_ms.get(who)
        if found and at_ms in found:
            found.remove(at_ms)

    def clear(self, who: VersionKey) -> None:
        """Somebody has decided about this version."""
        self._at_ms.pop(who, None)

    def count(self, now_ms: int, who: VersionKey) -> int:
        """Those in force now."""
        found = self._at_ms.get(who)
        if not found:
            return 0
        self._forget(now_ms, found)
        return len(found)

    def _forget(self, now_ms: int, found: deque[int]) -> None:
        while found and now_ms - found[0] >= self._window_ms:
            found.popleft()
