"""`kourou_clock`: advances the time of a cluster and its clients; hours take milliseconds.

    kourou_clock.advance(minutes=30)     everything due within 30 minutes happens, in order
    kourou_clock.leap(hours=72)          it is immediately 72 hours later, as after a suspend

`advance` moves the clock in steps and waits after each until its effects are complete: heartbeats
are sent and answered before the next step, so no client or broker expires. A step is one fiftieth
of the way, at least 20 ms and at most 2 s, which is less than any default timeout: requests in
flight do not time out. A step ends early when a delayed message is due.

State: none; the clock has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from kourou.testing.cluster_thread import WORK_S_MAX, ClusterThread, TravelClock

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
