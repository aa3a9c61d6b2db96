"""Runners, which call the application's handlers on its own loop or in client threads.

An *item* is the argument of one handler call: a message, or a list of messages of one queue.

    I/O thread --submit--> runner --call--> handler        report.finished(item)
                                                         report.failed(item, error)

A handler's return value may also mean a failure (kourou.client.consumer.outcomes).

Guarantees: each item is passed to the handler at most once. Exactly one report follows, whatever
the handler raises, unless the runner is stopped before the call or the handler is cancelled while
the consumer closes. In these cases the message stays unfinished, is not committed, and is delivered
again to another consumer. Items of queues that are no longer assigned are dropped without a call
and without a report.

A handler that raises SystemExit or its own CancelledError has failed like any other: without a
report its message would block the group's offset for ever, unnoticed. Only Ctrl-C
(KeyboardInterrupt) on the application's loop is also propagated to the application after its
report.

State: soft.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import CoroutineType
from typing import Any, Protocol, TypeAlias

from kourou.client.consumer.outcomes import failure_in
from kourou.client.introspection.running_info import NOT_MEASURED, SELDOM, ConsumeLog
from kourou.client.session.io_thread import ThreadQueue
from kourou.errors import BadRequest

Item: TypeAlias = Any
"""A received message, or a list of them; runners do not inspect it."""

TURNS_PER_YIELD = 64
"""The number of calls of a handler that never waits before other tasks of the loop may run."""
REPLACE_AFTER_S = 1.0
"""The pause before a cancelled worker is replaced; a loop that shuts down has ended by then."""

END_WORKER = (KeyboardInterrupt, GeneratorExit)
"""What is propagated to the loop after the report.

That is Ctrl-C, and the end of a coroutine that is being destroyed and must not await any more.
"""


class HandlerReport(Protocol):
    """Receives the outcome of each item; callable from any thread."""

    def finished(self, item: Item) -> object:
        """The handler returned."""
        ...

    def failed(self, item: Item, error: BaseException) -> None:
        """The handler raised an exception, or returned a value that means failure."""
        ...

    def wanted(self, item: Item) -> bool:
        """Return whether the item's queue is still assigned."""
        ...


class HandlerRunner(Protocol):
    """Calls a handler with items."""

    def submit(self, items: Sequence[Item]) -> None:
        """Accept items; called on the I/O thread, never blocks."""
        ...

    async def close(self, timeout_ms: int) -> bool:
        """Start no new calls, wait for running ones; returns False if some still run afterwards."""
        ...

    def running(self) -> list[Item]:
        """Return the items that handlers are processing now; on the I/O thread."""
        ...

    def times(self) -> list[int]:
        """Return the measured call durations in ms since the last call; on the I/O thread."""
        ...

    async def call(self, item: Item) -> BaseException | None:
        """Call the handler with an item from outside the consumer; returns its error; no report."""
        ...


class CoroutineRunner:
    """Awaits an `async def` handler on the application's loop, with up to `concurrency` calls."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Callable[[Any], Awaitable[Any]],
        report: HandlerReport,
        log: ConsumeLog,
        *,
        concurrency: int,
    ) -> None:
        self._log = log
        self._loop = loop
        self._handler = handler
        self._report = report
        self._concurrency = concurrency
        self._inbox: ThreadQueue[Item] = ThreadQueue(loop, self._take)
        self._ready: deque[Item] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._running: dict[object, Item] = {}
        self._active = 0
        self._calling = 0
        self._closing = False

    def submit(self, items: Sequence[Item]) -> None:
        """Accept items."""
        self._inbox.put_many(list(items))

    def _take(self, items: list[Item]) -> None:
        if self._closing:
            return
        self._ready.extend(items)
        # Workers inside a call accept no items now, so the ready items need other workers.
        while self._active < min(self._concurrency, self._calling + len(self._ready)):
            self._active += 1
            worker = self._loop.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled():
            worker.exception()  # retrieved: the error was reported, and has reached the loop

    async def _work(self) -> None:
        worker_key = object()
        try:
            await self._work_off(worker_key)
        finally:
            # Immediately, not in the task's callbacks: `_take` may run before those.
            self._active -= 1
            self._running.pop(worker_key, None)
            if self._ready and not self._closing and not self._loop.is_closed():
                # The worker ended before its work was done.
                self._loop.call_later(REPLACE_AFTER_S, self._take, [])

    async def _work_off(self, worker_key: object) -> None:
        ready, report, handler, log = self._ready, self._report, self._handler, self._log
        running = self._running
        turns, logged = 0, False
        while ready and not self._closing:
            item = ready.popleft()
            if not report.wanted(item):
                continue
            seldom = not turns & SELDOM
            if seldom:
                logged = log.writes
            started_ms = log.begin(measured=True) if seldom or logged else NOT_MEASURED
            self._calling += 1
            running[worker_key] = item
            try:
                result = await handler(item)
            except BaseException as error:  # whatever an application raises is a failure
                cancelled = isinstance(error, asyncio.CancelledError)
                if cancelled and self._closing:
                    raise
                report.failed(item, error)
                if isinstance(error, END_WORKER) or (cancelled and _is_cancelled()):
                    raise
            else:
                failure = None if result is None else failure_in(result)
                if failure is None:
                    report.finished(item)
                    if started_ms != NOT_MEASURED:
                        log.consumed(item, started_ms)
                else:
                    report.failed(item, failure)
            finally:
                self._calling -= 1
            turns += 1
            if turns % TURNS_PER_YIELD == 0:
                await asyncio.sleep(0)

    def running(self) -> list[Item]:
        """Return the items that handlers are processing."""
        return list(self._running.values())

    def times(self) -> list[int]:
        """Return the measured call durations."""
        return self._log.collect()

    async def call(self, item: Item) -> BaseException | None:
        """Call the handler with an item from outside the consumer."""

        async def called() -> object:
            return await self._handler(item)

        try:
            work = asyncio.run_coroutine_threadsafe(called(), self._loop)
            result = await asyncio.wrap_future(work)
        except Exception as error:  # noqa: BLE001 - whatever an application raises is a failure
            return error
        return failure_in(result)

    async def close(self, timeout_ms: int) -> bool:
        """Start no new calls, and wait for running ones."""
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
    """Calls a plain function in its own threads, `threads_min` to `threads_max` of them.

    If `threads_max` is smaller than `threads_min`, it takes precedence.
    """

    def __init__(
        self,
        handler: Callable[[Any], Any],
        report: HandlerReport,
        log: ConsumeLog,
        *,
        threads_min: int,
        threads_max: int,
        name: str,
    ) -> None:
        self._handler = handler
        self._report = report
        self._log = log
        self._threads_max = threads_max
        self._name = name
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._handed = 0
        self._taken_off: list[int] = []
        self._running: list[Item] = []  # by thread; _NO_MORE while it waits
        self._closing = False
        for _ in range(min(threads_min, threads_max)):
            self._grow()

    def submit(self, items: Sequence[Item]) -> None:
        """Accept items; adds threads while there are more unfinished items than threads."""
        for item in items:
            self._items.put(item)
        self._handed += len(items)
        unfinished = self._handed - sum(self._taken_off)
        while len(self._threads) < min(unfinished, self._threads_max) and not self._closing:
            self._grow()

    @property
    def threads(self) -> int:
        """The number of threads."""
        return len(self._threads)

    def _grow(self) -> None:
        number = len(self._threads)
        thread = threading.Thread(
            target=self._work, args=(number,), name=f"{self._name}-{number}", daemon=True
        )
        self._taken_off.append(0)
        self._running.append(_NO_MORE)
        self._threads.append(thread)
        thread.start()

    def _work(self, number: int) -> None:
        items, report, handler, log = self._items, self._report, self._handler, self._log
        running = self._running
        taken = 0
        while True:
            self._taken_off[number] = taken  # each thread has its own counter, so no update is lost
            running[number] = _NO_MORE
            item = items.get()
            if item is _NO_MORE:
                return
            taken += 1
            if self._closing or not report.wanted(item):
                continue
            # A thread that is not busy measures every call.
            started_ms = log.begin(not taken & SELDOM or items.empty())
            running[number] = item
            try:
                result = call_plain(handler, item)
            except BaseException as error:  # noqa: BLE001 - whatever an application raises is a failure
                report.failed(item, error)
                continue
            failure = None if result is None else failure_in(result)
            if failure is None:
                report.finished(item)
                if started_ms != NOT_MEASURED:
                    log.consumed(item, started_ms)
            else:
                report.failed(item, failure)

    def running(self) -> list[Item]:
        """Return the items that handlers are processing."""
        return [item for item in self._running if item is not _NO_MORE]

    def times(self) -> list[int]:
        """Return the measured call durations."""
        return self._log.collect()

    async def call(self, item: Item) -> BaseException | None:
        """Call the handler with an item from outside the consumer, in an additional thread."""

        def called() -> object:
            return call_plain(self._handler, item)

        try:
            result = await asyncio.get_running_loop().run_in_executor(None, called)
        except Exception as error:  # noqa: BLE001 - whatever an application raises is a failure
            return error
        return failure_in(result)

    async def close(self, timeout_ms: int) -> bool:
        """Start no new calls, and wait for running ones."""
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


def is_coroutine_handler(handler: Callable[[Any], Any]) -> bool:
    """Return whether a call must be awaited; the handler may have an `async def __call__`."""
    # The class is checked, not the instance: Python looks up `__call__` there.
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(type(handler), "__call__", None)  # noqa: B004 - checks its kind, not its existence
    )


def call_plain(handler: Callable[[Any], Any], item: Item) -> Any:
    """Call a plain handler. Raises BadRequest if it returns a coroutine, which would be dropped."""
    made = handler(item)
    if type(made) is CoroutineType:
        made.close()
        raise BadRequest(
            "the handler returned a coroutine, which is never awaited",
            hint="pass the async def function itself to listen",
        )
    return made


def _is_cancelled() -> bool:
    """Return whether this task was cancelled, rather than its handler raising CancelledError."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


_NO_MORE = object()
