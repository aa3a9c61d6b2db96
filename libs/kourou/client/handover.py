"""Things cross from any thread to one event loop, with one wakeup for a burst.

Waking a loop from another thread costs a system call and often a switch of threads, so it is rung
only when the other side is not already on its way: whoever puts something while a wakeup is pending
adds to the same burst.

Invariants: every item put before `close` is taken exactly once and in the order of its thread;
`_coming` is lowered before the items are taken, so an item put meanwhile rings again.

State: soft.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Handover(Generic[T]):
    """Items for `take`, which runs on `loop` with all that has come since the last time."""

    __slots__ = ("_coming", "_items", "_loop", "_take")

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[list[T]], None]) -> None:
        self._loop = loop
        self._take = take
        self._items: deque[T] = deque()
        self._coming = False

    def put(self, item: T) -> bool:
        """Hand one item over; False when the loop is closed and nobody will take it."""
        self._items.append(item)
        return self._coming or self._ring()

    def put_many(self, items: list[T]) -> bool:
        """Hand several over at once."""
        self._items.extend(items)
        return self._coming or self._ring()

    def _ring(self) -> bool:
        self._coming = True
        try:
            if _get_running_loop() is self._loop:
                self._loop.call_soon(self._run)
            else:
                self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:  # the loop is closed: its owner has gone home
            self._coming = False
            return False
        return True

    def _run(self) -> None:
        self._coming = False
        items = self._items
        burst: list[T] = []
        while items:
            burst.append(items.popleft())
        if burst:
            self._take(burst)
