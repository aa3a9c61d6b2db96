"""`kourou_clock`: let hours pass for a cluster and its clients, in milliseconds of the machine.

    kourou_clock.advance(minutes=30)     all that happens within 30 minutes happens, in its order
    kourou_clock.leap(hours=72)          it is 72 hours later at once, as after a suspended machine

`advance` goes in steps, and after each lets what it set off settle: heartbeats go out and are
answered before the next step, so nobody is taken for dead. A step is a fiftieth of the way, 20 ms
at least and 2 s at most, which is less than any default timeout: a request that is under way while
the clock is advanced is not given up. A step ends early where a delayed message is due.

State: none; the clock has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from kourou.testing.cluster_thread import WORK_S_MAX, ClusterThread
from kourou.testing.travel import TravelClock

STEPS = 50
STEP_MS_MIN = 20
STEP_MS_MAX = 2_000
STEP_S_MAX = 0.1
"""What a step may take of the machine's time, on average; it takes less than a millisecond."""

Settle = Callable[[], Awaitable[None]]
NextDue = Callable[[], int | None]
"""The wall time in ms at which the next delayed message is due; None if none waits."""


class ClusterClock:
    """The time of one cluster, and of all clients that were given its address as it stands."""

    def __init__(
        self,
        thread: ClusterThread,
        clock: TravelClock,
        settle: Settle,
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
        """Wall time of the cluster: milliseconds since the epoch."""
        return self._clock.now_ms()

    @property
    def now(self) -> datetime:
        """The same as a moment in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1_000, UTC)

    def advance(
        self,
        seconds: float | timedelta = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """Let so much time pass, with everything that happens meanwhile.

        An hour takes about half a second, and most of a minute where there is a Raft group, whose
        heartbeats must not be missed. What runs in your own threads, or on your own event loop,
        may still be at work when this returns; `kourou_sent` waits for its results.
        """
        way_ms = _milliseconds(seconds, minutes, hours, days)
        step_ms = min(max(way_ms // STEPS, STEP_MS_MIN), self._step_ms_max)
        patience_s = WORK_S_MAX + STEP_S_MAX * (way_ms // step_ms)
        self._thread.run(self._advance(way_ms, step_ms), patience_s)

    def leap(
        self,
        seconds: float | timedelta = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """Be so much later at once: nothing happened meanwhile, and everything is due.

        What is under way on sockets arrives first; a request that is held, or lost, times out, and
        brokers may have given up clients, which then join again.
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
        # A broker may have heard a heartbeat whose answer is still on its way: whoever waits for
        # it would give up, and the broker forget a member that a test has just seen there.
        await self._settle()
        self._clock.move(way_ms)
        await self._settle()


def _milliseconds(seconds: float | timedelta, minutes: float, hours: float, days: float) -> int:
    first = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    way = first + timedelta(minutes=minutes, hours=hours, days=days)
    assert way >= timedelta(0), "time does not go back"
    return round(way / timedelta(milliseconds=1))
