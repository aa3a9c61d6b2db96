"""After work an event loop looks for more for a moment before it sleeps, where that pays.

A processor without work sleeps, and to wake one up takes 5 to 60 µs, the more so in a virtual
machine. Whoever asks one thing after another waits for that twice in each round trip. So whoever
expects input within microseconds keeps its loop awake for a window. Where nothing comes within one,
the next 1, 3, 7, … 63 are left out: then others need the processor, or the network is slow.

State: soft. All calls belong on the loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

BUSY_POLL_US = 250
"""The default window: a round trip between processes of one machine, with some work in it."""

LONGEST_BREAK = 63
"""So many windows are left out at most."""


class BusyPoll:
    """Keeps `loop` awake for `window_us` after `begin`; 0: never.

    `idle` is called once in each window, when the loop has looked for input and found none.
    """

    __slots__ = (
        "_idle",
        "_leave_out",
        "_left_out",
        "_loop",
        "_next",
        "_rounds",
        "_until",
        "_window_s",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        window_us: int,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._window_s = window_us / 1_000_000
        self._idle = idle
        self._next: asyncio.Handle | None = None
        self._until = 0.0
        self._rounds = 0
        self._leave_out = self._left_out = 0

    def begin(self) -> None:
        """More input is expected at once."""
        if self._next is None:
            if self._left_out < self._leave_out:
                self._left_out += 1
                return
            if not self._window_s:
                return
            self._left_out = 0
            self._next = self._loop.call_soon(self._look)
        self._rounds = 0
        self._until = time.monotonic() + self._window_s

    def met(self) -> None:
        """Input came."""
        if self._next is not None:
            self._leave_out = 0

    def stop(self) -> None:
        """Nothing more is expected."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look(self) -> None:
        self._rounds += 1
        if self._rounds == 2:  # between the rounds the loop has looked at its sockets
            self._idle()
        if time.monotonic() < self._until:
            self._next = self._loop.call_soon(self._look)
        else:
            self._next = None
            self._leave_out = min(2 * self._leave_out + 1, LONGEST_BREAK)
