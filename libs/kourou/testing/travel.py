"""Time that passes when a test says so, for real services and clients on one event loop.

Every timer of the loop (`call_later`, `asyncio.sleep`, `asyncio.timeout`) counts by the clock, so
what waits for an hour is due as soon as the clock was moved by an hour. Between moves time passes
as it always does. What sleeps elsewhere, in threads or on other loops, does not notice.

Invariant: neither time ever steps back.

State: soft.
"""

from __future__ import annotations

import asyncio
import time

from kourou.clock import SystemClock


class TravelClock:
    """The machine's clocks, ahead of them by `ahead_ms`; may be read in any thread."""

    __slots__ = ("_machine", "ahead_ms")

    def __init__(self) -> None:
        self._machine = SystemClock()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""
        return self._machine.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        """Monotonic time in milliseconds."""
        return self._machine.monotonic_ms() + self.ahead_ms

    def move(self, milliseconds: int) -> None:
        """Be so much later at once; call it on the loop whose timers follow this clock."""
        assert milliseconds >= 0, milliseconds
        self.ahead_ms += milliseconds


class TravelLoop(asyncio.SelectorEventLoop):
    """An event loop that lives by a TravelClock."""

    def __init__(self, clock: TravelClock) -> None:
        super().__init__()
        self._travel = clock

    def time(self) -> float:
        """Seconds, monotonic."""
        return time.monotonic() + self._travel.ahead_ms / 1_000
