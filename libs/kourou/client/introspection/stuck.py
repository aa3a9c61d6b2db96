"""Detection of handlers that process one item for too long.

Nothing is recorded when a handler is called: each check compares the running items with those of
earlier checks. So calls cost nothing, and an item is detected late by at most the time between two
checks.

State: soft.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class StuckWatch:
    """Detects items that have been running for `timeout_ms`, each once."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        # The items are kept, so that no other object can get the id of a monitored one.
        self._since: dict[tuple[int, int], tuple[Any, int, bool]] = {}

    def look(self, running: Iterable[Any], now_ms: int) -> list[Any]:
        """Return the items in `running` that exceed the time limit now; `now_ms` is monotonic."""
        seen: dict[tuple[int, int], tuple[Any, int, bool]] = {}
        late: list[Any] = []
        for item in running:
            first = item[0] if type(item) is list else item
            key = (id(item), first.attempt)  # a redelivered item counts as new
            _, since_ms, told = self._since.get(key, (item, now_ms, False))
            if not told and now_ms - since_ms >= self._timeout_ms:
                late.append(item)
                told = True
            seen[key] = (item, since_ms, told)
        self._since = seen
        return late
