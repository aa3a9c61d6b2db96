"""A clock and an event loop whose time a test can advance, for real services and clients.

Every timer of the loop (`call_later`, `asyncio.sleep`, `asyncio.timeout`) uses the clock: a timer
of one hour is due as soon as the clock has been advanced by one hour. Between advances time passes
normally. Sleeps in other threads or on other loops are not affected.

Invariant: neither the wall time nor the monotonic time goes backwards.

State: soft.
"""

from __future__ import annotations

import asyncio
import time

from kourou.clock import SystemClock


class TravelClock:
    """The machine's clocks, advanced by `ahead_ms`; readable from any thread."""

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
        """Advance the clock; call it on the loop whose timers use it."""
        assert milliseconds >= 0, milliseconds
        self.ahead_ms += milliseconds


class TravelLoop(asyncio.SelectorEventLoop):
    """An event loop that uses a TravelClock."""

    def __init__(self, clock: TravelClock) -> None:
        super().__init__()
        self._travel = clock

    def time(self) -> float:
        """Monotonic time in seconds."""
        return time.monotonic() + self._travel.ahead_ms / 1_000
