"""The event loop that runs a client's connections: that of an I/O thread, or the application's.

An asynchronous client uses the loop that opened it, so its messages cross no threads. Orderly
consumption, and everything in a blocking client, uses the I/O thread. Locks are renewed and
heartbeats sent there, so a handler that blocks its own loop or thread never costs a group its
queues. Unordered consumption only needs heartbeats (kourou.client.session.heartbeats).

Fork: threads do not survive a fork. In the child every inherited `Io` is marked `orphaned`; its
clients then raise `ForkedClient`, and a client opened in the child gets a new one. The parent's
sockets are left untouched in the child: they are neither closed nor freed.

`background` starts tasks on a loop; `ThreadQueue` passes items from any thread to a loop.

State: soft. `_threads` is this process's registry.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import logging
import os
import threading
import weakref
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import uvloop

from kourou.clock import Clock, SystemClock
from kourou.errors import Rejected
from kourou.time_limit import within

P = ParamSpec("P")
T = TypeVar("T")
ItemT = TypeVar("ItemT")
_log = logging.getLogger("kourou.client")
JOIN_S_MAX = 10.0


class ForkedClient(Rejected):
    """This client was opened by the parent process; open a new one in this process."""

    def __init__(self) -> None:
        super().__init__(
            "this client was opened before the process forked",
            hint="open a new Client in the child process",
        )


class ClientClosed(Rejected):
    """The client is closed, or was never opened."""

    def __init__(self, what: str = "client") -> None:
        super().__init__(f"the {what} is not open", hint="use it inside `async with` or `with`")


class LoopEnded(ClientClosed):
    """The event loop that opened this client does not run any more."""

    def __init__(self) -> None:
        Rejected.__init__(
            self,
            "the event loop that opened this client has ended, or does not run",
            hint="open the client on the loop that uses it",
        )


class Io:
    """The loop that runs a client's connections.

    `identities` contains client ID and group of each consumer that clients of this process and
    these name servers (`key`) have. Two consumers with the same ID and group would both be assigned
    the same queues.
    """

    def __init__(self, key: str, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.key = key
        self.orphaned = False
        self.identities: set[tuple[str, str]] = _registry.identities.setdefault(key, set())
        self.clock = clock
        self.loop = loop

    def check(self) -> None:
        """Raise ForkedClient in a process other than the client's, ClientClosed after its end."""
        if self.orphaned:
            raise ForkedClient
        if self.loop.is_closed():
            raise ClientClosed("client's I/O thread")

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on this loop; any thread may wait for the future."""
        self._check_for(work)
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this loop and await its result here; cancellation is passed on."""
        if asyncio.get_running_loop() is not self.loop:
            return await asyncio.wrap_future(self.submit(work))
        self._check_for(work)
        return await work

    def _check_for(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self.check()
        except Rejected:
            work.close()
            raise


class IoLoop(Io):
    """The application's own loop, for one client that was opened on it."""

    def __init__(self, key: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(key, loop, SystemClock())
        _loops.add(self)

    def check(self) -> None:
        """Raise ForkedClient in another process, LoopEnded if the loop does not run."""
        if self.orphaned:
            raise ForkedClient
        if not self.loop.is_running():
            raise LoopEnded


class IoThread(Io):
    """One thread with one loop. `acquire` returns a shared one, `release` releases it.

    With a given loop and clock, its time may differ from real time (kourou.testing).
    """

    def __init__(
        self,
        key: str,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(key, loop or uvloop.new_event_loop(), clock or SystemClock())
        self.registered = False
        self._thread = threading.Thread(target=self._run, name=f"kourou-io-{key}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self._finish()

    def _finish(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        self.loop.close()

    def stop(self) -> None:
        """Cancel all tasks, close the loop, end the thread. Waits unless called on that thread."""
        if self.orphaned or self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S_MAX)
            if self._thread.is_alive():
                _log.warning(
                    "client-thread-stuck: client thread %(thread)s did not end within %(waited_s)s "
                    "s",
                    {"thread": self.key, "waited_s": JOIN_S_MAX},
                )


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs in this thread, or None."""
    return asyncio._get_running_loop()  # for authors of event loops; raises no exception


class OnIo(Protocol):
    """An object whose connections run on `_io`."""

    _io: Io


SelfT = TypeVar("SelfT", bound=OnIo)


def on_io_thread(
    method: Callable[Concatenate[SelfT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SelfT, P], Coroutine[Any, Any, T]]:
    """Decorate a method that may be awaited on any loop, so that it runs on the object's loop.

    `__wrapped__` is the method itself, for APIs that wait in another way.
    """

    @wraps(method)
    async def called(self: SelfT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._io.run(method(self, *args, **kwargs))

    return called


class _Registry:
    """The shared threads of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads: dict[str, IoThread] = {}
        self.users: dict[str, int] = {}
        self.identities: dict[str, set[tuple[str, str]]] = {}

    def acquire(self, key: str) -> IoThread:
        with self.lock:
            thread = self.threads.get(key)
            if thread is None:
                thread = self.threads[key] = IoThread(key)
            self.users[key] = self.users.get(key, 0) + 1
            return thread

    def release(self, thread: IoThread) -> None:
        with self.lock:
            if self.threads.get(thread.key) is not thread:
                return  # a thread of the parent process, or one that was stopped at exit
            self.users[thread.key] -= 1
            if self.users[thread.key]:
                return
            del self.users[thread.key]
            del self.threads[thread.key]
        thread.stop()

    def register_thread(self, thread: IoThread) -> None:
        with self.lock:
            assert thread.key not in self.threads, thread.key
            self.threads[thread.key] = thread
            self.users[thread.key] = 1
            thread.registered = True

    def unregister_thread(self, thread: IoThread) -> int:
        with self.lock:
            if self.threads.get(thread.key) is not thread:
                return 0
            del self.threads[thread.key]
            return self.users.pop(thread.key) - 1

    def registered(self, key: str) -> IoThread | None:
        with self.lock:
            thread = self.threads.get(key)
            return thread if thread is not None and thread.registered else None

    def stop_all(self) -> None:
        with self.lock:
            threads = list(self.threads.values())
            self.threads.clear()
            self.users.clear()
        for thread in threads:
            thread.stop()


_registry = _Registry()
_loops: weakref.WeakSet[IoLoop] = weakref.WeakSet()
_orphans: list[Io] = []
"""Never freed in a forked child: freeing them would touch the parent's sockets."""


def acquire(key: str, loop: asyncio.AbstractEventLoop | None = None) -> Io:
    """Return `loop`, or the shared thread for this set of name servers; pair with `release`.

    If a thread was registered by `register_thread`, it is returned whatever `loop` is.
    """
    if loop is not None and _registry.registered(key) is None:
        return IoLoop(key, loop)
    return _registry.acquire(key)


def release(io: Io) -> None:
    """Release an Io; its last user ends a thread. In a forked child this does nothing."""
    if isinstance(io, IoThread):
        _registry.release(io)


def register_thread(thread: IoThread) -> None:
    """Let clients of the name servers `thread.key` run on an existing thread."""
    _registry.register_thread(thread)


def unregister_thread(thread: IoThread) -> int:
    """Undo `register_thread`; returns how many clients still use the thread. Its owner stops it."""
    return _registry.unregister_thread(thread)


def is_network_thread(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this loop runs on one of these threads, not on an application's."""
    return any(thread.loop is loop for thread in list(_registry.threads.values()))


def clock_at(key: str) -> Clock:
    """Return the clock for clients of this set of name servers."""
    thread = _registry.registered(key)
    return SystemClock() if thread is None else thread.clock


def _forked() -> None:
    for io in (*_registry.threads.values(), *_loops):
        io.orphaned = True
        _orphans.append(io)
    _registry.__init__()  # type: ignore[misc]  # a lock held by another thread stays locked here


os.register_at_fork(after_in_child=_forked)
atexit.register(_registry.stop_all)


def background(work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
    """Run `work` on the running loop as a task that is not awaited; `what` names it in the log.

    A loop that ends with an unexpected error would leave a client that looks alive but sends no
    heartbeats and no pulls. So every error that ends such a task, except cancellation, is logged.
    """
    # In an empty context: what is current at the start (a span, above all) ends soon.
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
    task.set_name(what)
    task.add_done_callback(_ended)
    return task


async def is_set_within(event: asyncio.Event, timeout_ms: float) -> bool:
    """Wait until the event is set; returns False if it is not within `timeout_ms`."""
    try:
        await within(event.wait(), timeout_ms / 1000)
    except TimeoutError:
        return False
    return True


def _ended(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        _log.error(
            "background-task-failed: background task failed unexpectedly: %(task)s",
            {"task": task.get_name()},
            exc_info=error,
        )


class ThreadQueue(Generic[ItemT]):
    """Passes items to `take`, which runs on `loop` with all items since its last call.

    Waking a loop from another thread costs a system call and often a thread switch. So the loop is
    woken only if no wakeup is pending; items that are added while one is pending join the same
    burst.

    Invariants: every item added before `close` is taken exactly once, in the order of its thread;
    `_coming` is reset before the items are taken, so an item added in the meantime wakes the loop
    again.
    """

    __slots__ = ("_coming", "_items", "_loop", "_take")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[list[ItemT]], None]
    ) -> None:
        self._loop = loop
        self._take = take
        self._items: deque[ItemT] = deque()
        self._coming = False

    def put(self, item: ItemT) -> bool:
        """Add one item; returns False if the loop is closed and the item will not be taken."""
        self._items.append(item)
        return self._coming or self._schedule()

    def put_many(self, items: list[ItemT]) -> bool:
        """Add several items at once."""
        self._items.extend(items)
        return self._coming or self._schedule()

    def _schedule(self) -> bool:
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
        take_next = self._items.popleft
        burst = [take_next() for _ in range(len(self._items))]
        if burst:
            self._take(burst)
