"""After work an event loop looks for more for a moment before it sleeps, where that pays.

Lives here: when to look, and when not to. May not live here: what work is.

A processor without work sleeps, and to wake one up takes 5 to 60 µs, the more so in a virtual
machine. Whoever asks one thing after another waits for that twice in each round trip. So whoever
expects input within microseconds keeps its loop awake for a window. Where nothing comes within one,
the next 1, 3, 7, … 63 are left out: then others need the processor, or the network is slow.

After some turns of the loop without news the record kernel looks in its place, at the descriptor
by which the loop itself waits: a turn of a loop costs microseconds, and takes them from the other
thread of the same core, on which the other side may run.

State: soft. All calls belong on the loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kourou.protocol import kernel

BUSY_POLL_US = 250
"""The default window: a round trip between processes of one machine, with some work in it."""

SPIN_AFTER = 3
"""So many turns are the loop's own: what was begun in one of them goes on in the next."""

SPIN_US = 50
"""How long the kernel looks at once: so late may be what the application does on the loop."""

LONGEST_BREAK = 63
"""So many windows are left out at most."""


class Breaks:
    """How many windows are left out, by what came of those before."""

    __slots__ = ("_left_out", "_length")

    def __init__(self) -> None:
        self._left_out = self._length = 0

    def over(self) -> bool:
        """Is it time for a window? Otherwise this one is left out."""
        if self._left_out < self._length:
            self._left_out += 1
            return False
        self._left_out = 0
        return True

    def met(self) -> None:
        """Something came within a window."""
        self._length = 0

    def missed(self) -> None:
        """Nothing came within one."""
        self._length = min(2 * self._length + 1, LONGEST_BREAK)


class BusyPoll:
    """Keeps `loop` awake for `window_us` after `begin`; 0: never.

    `idle` is called once in each window, when the loop has looked for input and found none.
    """

    __slots__ = (
        "_breaks",
        "_descriptor",
        "_idle",
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
        self._descriptor = descriptor_of(loop)
        self._window_s = window_us / 1_000_000
        self._idle = idle
        self._next: asyncio.Handle | None = None
        self._until = 0.0
        self._rounds = 0
        self._breaks = Breaks()

    def begin(self) -> None:
        """More input is expected at once."""
        if self._next is None:
            if not self._window_s or not self._breaks.over():
                return
            self._next = self._loop.call_soon(self._look)
        self._rounds = 0
        self._until = time.monotonic() + self._window_s

    def met(self) -> None:
        """Input came."""
        if self._next is not None:
            self._breaks.met()

    def stop(self) -> None:
        """Nothing more is expected."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look(self) -> None:
        self._rounds += 1
        if self._rounds == 2:  # between the rounds the loop has looked at its sockets
            self._idle()
        left_s = self._until - time.monotonic()
        if left_s > 0 and self._rounds > SPIN_AFTER and self._descriptor >= 0:
            kernel.spin(self._descriptor, min(SPIN_US, int(left_s * 1_000_000)))
        if left_s > 0:
            self._next = self._loop.call_soon(self._look)
        else:
            self._next = None
            self._breaks.missed()


def descriptor_of(loop: asyncio.AbstractEventLoop) -> int:
    """What a loop waits by: of uvloop and of asyncio's own an epoll descriptor; -1 if unknown."""
    own = getattr(loop, "_get_backend_id", None)
    if own is not None:
        return int(own())
    fileno = getattr(getattr(loop, "_selector", None), "fileno", None)
    return -1 if fileno is None else int(fileno())
