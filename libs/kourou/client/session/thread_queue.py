"""A queue from any thread to one event loop, with one wakeup for a burst of items.

Waking a loop from another thread costs a system call and often a thread switch. So the loop is
woken only if no wakeup is pending; items that are added while one is pending join the same burst.

Invariants: every item added before `close` is taken exactly once, in the order of its thread;
`_coming` is reset before the items are taken, so an item added in the meantime wakes the loop
again.

State: soft.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ThreadQueue(Generic[T]):
    """Passes items to `take`, which runs on `loop` with all items since its last call."""

    __slots__ = ("_coming", "_items", "_loop", "_take")

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[list[T]], None]) -> None:
        self._loop = loop
        self._take = take
        self._items: deque[T] = deque()
        self._coming = False

    def put(self, item: T) -> bool:
        """Add one item; returns False if the loop is closed and the item will not be taken."""
        self._items.append(item)
        return self._coming or self._ring()

    def put_many(self, items: list[T]) -> bool:
        """Add several items at once."""
        self._items.extend(items)
        return self._coming or self._ring()

    def _ring(self) -> bool:
        self._coming = True
        try:
            if _get_running_loop() is self._loop:
                self._loop.call_soon(self._run)
            else:
                self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:  # the loop is closed
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
