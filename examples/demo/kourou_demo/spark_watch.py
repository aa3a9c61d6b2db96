"""Polls the progress of the Spark pipeline while the demo runs.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from kourou.clock import Clock
from kourou.errors import Unavailable
from kourou_demo.picture import Rate, TablePicture
from kourou_demo.progress_waits import ProgressWaits
from kourou_demo.spark_service import (
    DELAYS,
    LAKE,
    SPARK_STUCK_S,
    QueryFigures,
    SparkService,
)

LOOK_S = 0.5
RUNNING = "running"
NAMES = {LAKE: "Parquet", DELAYS: "tables"}
"""Names of the queries in the view."""


class SparkWatch:
    """The last reported status of the service; empty at first."""

    def __init__(self, service: SparkService, clock: Clock) -> None:
        self.service = service
        self.queries: Mapping[str, QueryFigures] = {}
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._rates = {name: Rate() for name in NAMES.values()}
        self._following: asyncio.Task[None] | None = None

    async def wait_until_runs(self, waits: ProgressWaits) -> float | None:
        """Wait until both queries run; returns the seconds since the start, or None."""
        if not await self.service.wait_until_ready(waits):
            return None
        self._following = asyncio.create_task(self._follow())

        def run() -> bool:
            phases = {one.phase for one in self._known()}
            return phases == {RUNNING} or bool(self.service.ended)

        if not await waits.wait("Spark's queries", lambda: 0, run, SPARK_STUCK_S):
            return None
        return None if self.service.ended else self._seconds_since(self._began_ms)

    async def wait_for_rows(self, count: int, waits: ProgressWaits) -> float | None:
        """Wait until both queries have written `count` rows; returns the seconds, or None."""
        if not self.follows:
            return None
        began_ms = self._clock.monotonic_ms()

        def there() -> bool:
            return self.rows >= count or bool(self.service.ended)

        if not await waits.wait("Spark's first batch", lambda: self.moved, there, SPARK_STUCK_S):
            return None
        return None if self.rows < count else self._seconds_since(began_ms)

    @property
    def follows(self) -> bool:
        """True once the service has started."""
        return self._following is not None

    def close(self) -> None:
        """Stop polling."""
        if self._following is not None:
            self._following.cancel()

    async def _follow(self) -> None:
        while not self.service.ended:
            with suppress(Unavailable):  # a busy service may not reply; poll again later
                self.queries = await asyncio.to_thread(self.service.queries)
            await asyncio.sleep(LOOK_S)

    @property
    def reached(self) -> int:
        """The sum of the offsets that both queries have reached, over all queues."""
        return min(one.ends for one in self._known())

    @property
    def rows(self) -> int:
        """Rows that both queries have written."""
        return min(one.rows for one in self._known())

    @property
    def moved(self) -> int:
        """A number that changes while there is progress."""
        return sum(one.rows + one.ends for one in self._known())

    def pictures(self) -> list[TablePicture]:
        """The snapshots for the view."""
        now_s = self._clock.monotonic_ms() / 1_000
        return [
            TablePicture(name, query.rows, rate.read(now_s, query.rows))
            for (name, rate), query in zip(self._rates.items(), self._known(), strict=True)
        ]

    def _seconds_since(self, began_ms: int) -> float:
        return (self._clock.monotonic_ms() - began_ms) / 1_000

    def _known(self) -> list[QueryFigures]:
        return [self.queries.get(name, QueryFigures()) for name in NAMES]
