"""The thread on which the services of a cluster and the clients of its address run.

It is the I/O thread that clients would otherwise create themselves
(kourou.client.session.io_thread), with an event loop whose time can be advanced. Services and
clients therefore share one clock. Every timer of the loop (`call_later`, `asyncio.sleep`,
`asyncio.timeout`) uses it: a timer of one hour is due as soon as the clock has been advanced by one
hour. Between advances time passes normally. Sleeps in other threads or on other loops are not
affected.

Invariant: neither the wall time nor the monotonic time goes backwards.

State: soft.

`kourou_clock`: advances the time of a cluster and its clients; hours take milliseconds.

    kourou_clock.advance(minutes=30)     everything due within 30 minutes happens, in order
    kourou_clock.leap(hours=72)          it is immediately 72 hours later, as after a suspend

`advance` moves the clock in steps and waits after each until its effects are complete: heartbeats
are sent and answered before the next step, so no client or broker expires. A step is one fiftieth
of the way, at least 20 ms and at most 2 s, which is less than any default timeout: requests in
flight do not time out. A step ends early when a delayed message is due.

State: none; the clock has it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
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


STEPS = 50
STEP_MS_MIN = 20
STEP_MS_MAX = 2_000
STEP_S_MAX = 0.1
"""The limit for the average real time of a step, which usually takes less than a millisecond."""

WaitUntilIdle = Callable[[], Awaitable[None]]
NextDue = Callable[[], int | None]
"""The wall time in ms at which the next delayed message is due; None if there is none."""


class ClusterClock:
    """The time of one cluster, and of all clients that use its address unchanged."""

    def __init__(
        self,
        thread: ClusterThread,
        clock: TravelClock,
        settle: WaitUntilIdle,
        next_due: NextDue,
        step_ms_max: int = STEP_MS_MAX,
    ) -> None:
        self._thread = thread
        self._step_ms_max = step_ms_max
        self._clock = clock
        self._settle = settle
        self._next_due = next_due

    @property
    def now_ms(self) -> int:
        """Wall time of the cluster in milliseconds since the epoch."""
        return self._clock.now_ms()

    @property
    def now(self) -> datetime:
        """Wall time of the cluster as a datetime in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1_000, UTC)

    def advance(
        self,
        seconds: float | timedelta = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """Advance the time; everything that is due in between happens.

        An hour takes about half a second, or most of a minute with a Raft group, whose heartbeats
        must not be missed. Code in your own threads, or on your own event loop, may still be
        running when this returns; `kourou_sent` waits for its results.
        """
        way_ms = _milliseconds(seconds, minutes, hours, days)
        step_ms = min(max(way_ms // STEPS, STEP_MS_MIN), self._step_ms_max)
        timeout_s = WORK_S_MAX + STEP_S_MAX * (way_ms // step_ms)
        self._thread.run(self._advance(way_ms, step_ms), timeout_s)

    def leap(
        self,
        seconds: float | timedelta = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """Jump to a later time: nothing happens in between, and everything that is then due
        follows.

        Data in flight on sockets arrives first. Parked pulls and lost requests time out, and
        brokers may have expired clients, which then join again.
        """
        self._thread.run(self._leap(_milliseconds(seconds, minutes, hours, days)))

    async def _advance(self, way_ms: int, step_ms: int) -> None:
        await self._settle()
        while way_ms > 0:
            move_ms = min(step_ms, way_ms)
            due_ms = self._next_due()
            if due_ms is not None:
                left_ms = due_ms - self._clock.now_ms()
                if 0 < left_ms < move_ms:
                    move_ms = left_ms
            self._clock.move(move_ms)
            way_ms -= move_ms
            await self._settle()

    async def _leap(self, way_ms: int) -> None:
        # A broker may have received a heartbeat whose reply is still in flight. Without this wait,
        # the client would time out, and the broker would drop a consumer that the test has just
        # seen.
        await self._settle()
        self._clock.move(way_ms)
        await self._settle()


def _milliseconds(seconds: float | timedelta, minutes: float, hours: float, days: float) -> int:
    first = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    way = first + timedelta(minutes=minutes, hours=hours, days=days)
    assert way >= timedelta(0), "time does not go back"
    return round(way / timedelta(milliseconds=1))
