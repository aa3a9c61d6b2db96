"""How messages meet the application's code, on its own loop or in threads of ours.

Lives here: two runners that take items from the client's I/O thread, call the handler, and report
what became of each. May not live here: pulling, windows, commits, redelivery.

An *item* is what one call of the handler takes: a message, or a list of messages of one queue.

    I/O thread --hand--> runner --call--> handler        report.finished(item)
                                                         report.failed(item, error)

Promises: an item is handed to the handler at most once; exactly one report follows unless the
runner is stopped before the call or the handler is cancelled with its loop (then the message stays
unfinished, is not committed, and comes again elsewhere). Items of queues that were taken away are
passed over without a call and without a report.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from kourou.client.handover import Handover
from kourou.clock import Clock

Item: TypeAlias = Any
"""A received message, or a list of them; runners do not look inside."""

TURNS_PER_YIELD = 64
"""Calls of a handler that never waits, before other tasks of the loop get their turn."""


_log = logging.getLogger("kourou.client.consume")


class Report(Protocol):
    """Where runners tell what became of an item; callable from any thread."""

    def finished(self, item: Item) -> None:
        """The handler returned."""
        ...

    def failed(self, item: Item, error: Exception) -> None:
        """The handler raised."""
        ...

    def wanted(self, item: Item) -> bool:
        """Is the item's queue still ours?"""
        ...


class Runner(Protocol):
    """Calls a handler with items."""

    def hand(self, items: Sequence[Item]) -> None:
        """Take items; called on the I/O thread, never blocks."""
        ...

    async def close(self, timeout_ms: int) -> bool:
        """Start nothing new, wait for running calls; False when some still run after the time."""
        ...


class CoroutineRunner:
    """Awaits an `async def` handler on the application's loop, `concurrency` calls at once."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Callable[[Any], Awaitable[Any]],
        report: Report,
        clock: Clock,
        *,
        concurrency: int,
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._handler = handler
        self._report = report
        self._concurrency = concurrency
        self._inbox: Handover[Item] = Handover(loop, self._take)
        self._ready: deque[Item] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._active = 0
        self._closing = False

    def hand(self, items: Sequence[Item]) -> None:
        """Take items."""
        self._inbox.put_many(list(items))

    def _take(self, items: list[Item]) -> None:
        if self._closing:
            return
        self._ready.extend(items)
        while self._active < min(self._concurrency, len(self._ready)):
            self._active += 1
            worker = self._loop.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        try:
            await self._work_off()
        finally:
            # At once, and not when the task's callbacks run: `_take` may come in between.
            self._active -= 1

    async def _work_off(self) -> None:
        ready, report, handler = self._ready, self._report, self._handler
        turns = 0
        while ready and not self._closing:
            item = ready.popleft()
            if not report.wanted(item):
                continue
            started_ms = self._clock.monotonic_ms() if _log.isEnabledFor(logging.DEBUG) else -1
            try:
                await handler(item)
            except Exception as error:  # noqa: BLE001 - whatever an application raises is a failure
                report.failed(item, error)
            else:
                report.finished(item)
                if started_ms >= 0:
                    _log_consumed(item, self._clock.monotonic_ms() - started_ms)
            turns += 1
            if turns % TURNS_PER_YIELD == 0:
                await asyncio.sleep(0)

    async def close(self, timeout_ms: int) -> bool:
        """Start nothing new, wait for running calls."""
        self._closing = True
        if self._loop.is_closed():
            return True
        work = asyncio.run_coroutine_threadsafe(self._wait(timeout_ms), self._loop)
        return await asyncio.wrap_future(work)

    async def _wait(self, timeout_ms: int) -> bool:
        self._ready.clear()
        running = {task for task in self._workers if task is not asyncio.current_task()}
        if not running:
            return True
        _, late = await asyncio.wait(running, timeout=timeout_ms / 1000)
        return not late


class ThreadRunner:
    """Calls a plain function in threads of its own, `threads_min` to `threads_max` of them."""

    def __init__(
        self,
        handler: Callable[[Any], Any],
        report: Report,
        clock: Clock,
        *,
        threads_min: int,
        threads_max: int,
        name: str,
    ) -> None:
        self._handler = handler
        self._report = report
        self._clock = clock
        self._threads_max = max(threads_min, threads_max)
        self._name = name
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closing = False
        for _ in range(threads_min):
            self._grow()

    def hand(self, items: Sequence[Item]) -> None:
        """Take items; more waiting than threads makes one more thread."""
        for item in items:
            self._items.put(item)
        if self._items.qsize() > len(self._threads) < self._threads_max and not self._closing:
            self._grow()

    @property
    def threads(self) -> int:
        """How many threads there are."""
        return len(self._threads)

    def _grow(self) -> None:
        number = len(self._threads)
        thread = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        items, report, handler = self._items, self._report, self._handler
        while True:
            item = items.get()
            if item is _NO_MORE:
                return
            if self._closing or not report.wanted(item):
                continue
            started_ms = self._clock.monotonic_ms() if _log.isEnabledFor(logging.DEBUG) else -1
            try:
                handler(item)
            except Exception as error:  # noqa: BLE001 - whatever an application raises is a failure
                report.failed(item, error)
            else:
                report.finished(item)
                if started_ms >= 0:
                    _log_consumed(item, self._clock.monotonic_ms() - started_ms)

    async def close(self, timeout_ms: int) -> bool:
        """Start nothing new, wait for running calls."""
        self._closing = True
        for _ in self._threads:
            self._items.put(_NO_MORE)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._join, timeout_ms / 1000)

    def _join(self, timeout_s: float) -> bool:
        ended = threading.Event()

        def wait_for_all() -> None:
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join()
            ended.set()

        threading.Thread(target=wait_for_all, name=f"{self._name}-end", daemon=True).start()
        return ended.wait(timeout_s)


def _log_consumed(item: Item, elapsed_ms: int) -> None:
    """What was consumed and how long it took (F375)."""
    for message in item if isinstance(item, list) else (item,):
        _log.debug("consumed %s in %d ms", message, elapsed_ms)


_NO_MORE = object()
