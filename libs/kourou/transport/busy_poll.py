"""Busy polling: an event loop polls its sockets for a short window before it sleeps.

An idle processor sleeps, and waking it takes 5 to 60 µs, more in a virtual machine. A client that
sends one request after the other pays this twice per round trip. Therefore a component that expects
input within microseconds keeps its loop awake for a window. If a window brings no input, the next
1, 3, 7, … 63 windows are skipped: then other processes need the processor, or the network is slow.

State: soft. All calls must be made on the loop's thread.
"""

from __future__ import annotations

import asyncio
import time

LONGEST_BREAK = 63
"""Maximum number of windows skipped in a row."""


class BusyPoll:
    """Keeps `loop` awake after `begin`; with `window_us` 0 it never does.

    The window begins when the loop has polled for input and found none, so what it does before does
    not shorten it.
    """

    __slots__ = (
        "_leave_out",
        "_left_out",
        "_loop",
        "_next",
        "_rounds",
        "_until",
        "_window_s",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, window_us: int) -> None:
        self._loop = loop
        self._window_s = window_us / 1_000_000
        self._next: asyncio.Handle | None = None
        self._until = 0.0
        self._rounds = 0
        self._leave_out = self._left_out = 0

    def begin(self) -> None:
        """Start or extend a window, because input is expected immediately."""
        if self._next is None:
            if self._left_out < self._leave_out:
                self._left_out += 1
                return
            if not self._window_s:
                return
            self._left_out = 0
            self._next = self._loop.call_soon(self._look)
        self._rounds = 0

    def met(self) -> None:
        """Record that input arrived within the window."""
        if self._next is not None:
            self._leave_out = 0

    def stop(self) -> None:
        """End the window: no more input is expected."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look(self) -> None:
        self._rounds += 1
        now_s = time.monotonic()
        if self._rounds <= 2:  # before the second, the loop has polled its sockets
            self._until = now_s + self._window_s
        if now_s < self._until:
            self._next = self._loop.call_soon(self._look)
        else:
            self._next = None
            self._leave_out = min(2 * self._leave_out + 1, LONGEST_BREAK)
