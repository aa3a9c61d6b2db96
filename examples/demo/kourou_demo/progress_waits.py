"""Waiting for conditions, with a limit on the time without progress.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kourou.clock import Clock

LOOK_S = 0.1
STUCK_AFTER_S = 40.0
"""A wait ends after so many seconds without progress."""


class ProgressWaits:
    """Waits for conditions; a wait without progress is recorded as a fault of the demo."""

    def __init__(self, clock: Clock, faults: list[str]) -> None:
        self._clock = clock
        self._faults = faults

    async def wait(
        self,
        what: str,
        moved: Callable[[], int],
        done: Callable[[], bool],
        stuck_after_s: float = STUCK_AFTER_S,
    ) -> bool:
        """Wait until `done` (True), or until `moved` has not changed for too long (False)."""

        async def look() -> tuple[int, bool]:
            return moved(), done()

        return await self._until(what, look, stuck_after_s)

    async def reach(self, what: str, count: Callable[[], Awaitable[int]], goal: int) -> int:
        """Wait until `count` reaches `goal` or stops changing; returns the last count."""
        reading = 0

        async def look() -> tuple[int, bool]:
            nonlocal reading
            reading = await count()
            return reading, reading >= goal

        await self._until(what, look, STUCK_AFTER_S)
        return reading

    async def _until(
        self, what: str, look: Callable[[], Awaitable[tuple[int, bool]]], stuck_after_s: float
    ) -> bool:
        last, since_ms = -1, self._clock.monotonic_ms()
        while True:
            now_ms = self._clock.monotonic_ms()
            reading, done = await look()
            if done:
                return True
            if reading != last:
                last, since_ms = reading, now_ms
            elif now_ms - since_ms > stuck_after_s * 1000:
                self._faults.append(f"{what}: no progress for {stuck_after_s:.0f} s")
                return False
            await asyncio.sleep(LOOK_S)
