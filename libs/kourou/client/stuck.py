"""Which handlers have been busy with one item for too long.

Nothing is noted when a handler is called: a look compares what runs now with what ran at the looks
before, so an item is found late by the time between two looks at most, and calls cost nothing.

State: soft.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class StuckWatch:
    """Finds items that have been running for `timeout_ms`; each is found once."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        # The items are kept, so that no other object can get the id of one that is watched.
        self._since: dict[tuple[int, int], tuple[Any, int, bool]] = {}

    def look(self, running: Iterable[Any], now_ms: int) -> list[Any]:
        """The items among `running` whose time is over now; `now_ms` is monotonic."""
        seen: dict[tuple[int, int], tuple[Any, int, bool]] = {}
        late: list[Any] = []
        for item in running:
            first = item[0] if type(item) is list else item
            key = (id(item), first.attempt)  # handed over again is begun again
            _, since_ms, told = self._since.get(key, (item, now_ms, False))
            if not told and now_ms - since_ms >= self._timeout_ms:
                late.append(item)
                told = True
            seen[key] = (item, since_ms, told)
        self._since = seen
        return late
