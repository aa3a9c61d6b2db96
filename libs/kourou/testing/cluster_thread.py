"""The thread on which the services of a cluster and the clients of its address run.

It is the I/O thread that clients would otherwise create themselves
(kourou.client.session.io_thread), with an event loop whose time can be advanced. Services and
clients therefore share one clock. Every timer of the loop (`call_later`, `asyncio.sleep`,
`asyncio.timeout`) uses it: a timer of one hour is due as soon as the clock has been advanced by one
hour. Between advances time passes normally. Sleeps in other threads or on other loops are not
affected.

Invariant: neither the wall time nor the monotonic time goes backwards.

State: soft.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
import warnings
from collections.abc import Coroutine
from typing import Any, TypeVar

from kourou.client.session import io_thread
from kourou.client.session.io_thread import IoThread
from kourou.clock import SystemClock

T = TypeVar("T")
WORK_S_MAX = 60.0
"""Time limit of one piece of work; exceeding it is a bug, so the test fails instead of hanging."""


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


class ClusterThread:
    """A thread with its own event loop; `register_thread` lets clients run on it."""

    def __init__(self) -> None:
        self.clock = TravelClock()
        self._io = IoThread("cluster", TravelLoop(self.clock), self.clock)
        self._registered = False

    def register_thread(self, address: str) -> None:
        """Let every client of this name server address run on this thread."""
        self._io.key = address
        io_thread.register_thread(self._io)
        self._registered = True

    def run(self, work: Coroutine[Any, Any, T], within_s: float = WORK_S_MAX) -> T:
        """Run a coroutine on the thread and wait; raises TimeoutError, and cancels it, after a
        timeout.
        """
        if self.is_this_thread:
            work.close()
            raise AssertionError("a cluster is used from your own threads, not from its own")
        future = self._io.submit(work)
        try:
            return future.result(within_s)
        except concurrent.futures.TimeoutError:
            if not future.done():
                future.cancel()
                raise TimeoutError(f"not done within {within_s:g} s") from None
            raise

    async def run_async(self, work: Coroutine[Any, Any, T], within_s: float = WORK_S_MAX) -> T:
        """Run a coroutine on the thread and await it on the current loop."""
        async with asyncio.timeout(within_s):
            return await self._io.run(work)

    @property
    def is_this_thread(self) -> bool:
        """True if the caller runs on this thread."""
        try:
            return asyncio.get_running_loop() is self._io.loop
        except RuntimeError:
            return False

    def stop(self) -> None:
        """Stop the thread. Clients that are still open are closed with a warning."""
        left = io_thread.unregister_thread(self._io) if self._registered else 0
        self._io.stop()
        if left:
            warnings.warn(
                f"{left} clients of the cluster at {self._io.key} were not closed",
                ResourceWarning,
                stacklevel=2,
            )


def run_elsewhere(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new loop in a new thread and wait for it, even if a loop runs here."""
    done: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            done.set_result(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - re-raised in the waiting thread
            done.set_exception(error)

    thread = threading.Thread(target=run, name="kourou-elsewhere", daemon=True)
    thread.start()
    try:
        return done.result()
    finally:
        thread.join()
