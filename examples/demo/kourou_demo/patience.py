"""How the demo waits for what it waits for, and when it gives up.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kourou.clock import Clock

LOOK_S = 0.1
STUCK_AFTER_S = 40.0
"""A wait ends when nothing has moved for so long."""


class Patience:
    """Waits until something is done; what stands still for too long is a fault of the demo."""

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
        """Until `done` (True); gives up when `moved` stands still for too long (False)."""

        async def look() -> tuple[int, bool]:
            return moved(), done()

        return await self._until(what, look, stuck_after_s)

    async def reach(self, what: str, count: Callable[[], Awaitable[int]], goal: int) -> int:
        """Until `count` has come to `goal`, or stands still for too long; where it stands."""
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
