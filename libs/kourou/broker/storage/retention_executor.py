"""The effect executor of retention: measures the disk, and deletes what the core decided to delete.

State: soft (the time of the next check, the deletion in progress).

One deletion runs at a time, without blocking the loop: queues are processed in slices, and files
are removed in a separate thread, because a file system takes a while to remove a gigabyte.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kourou.clock import Clock, boot_id
from kourou.engine.effects import CleanProjections, DeleteLogBefore, DiskStarving, Effect
from kourou.engine.inputs import DiskMeasured, Input, LogShrunk
from kourou.errors import DiskFull
from kourou.store.disk import FULL, as_store_error
from kourou.store.retention import Now
from kourou.store.store import Store

_log = logging.getLogger("kourou.broker")

LOOK_MS = 1_000


class RetentionExecutor:
    """Runs on the service's loop; `checkpoint` writes one and returns when it is on disk."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        post: Callable[[Input], None],
        start: Callable[[Coroutine[Any, Any, None]], None],
        checkpoint: Callable[[], Awaitable[None]],
        freed: Callable[[], None],
        failed: Callable[[BaseException], None],
        events_projected: Callable[[], int | None],
        boot: str | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._post = post
        self._start = start
        self._checkpoint = checkpoint
        self._freed = freed
        self._failed = failed
        self._events_projected = events_projected
        self._boot = boot_id() if boot is None else boot
        self._worker = ThreadPoolExecutor(1, "kourou-delete")
        self._one = asyncio.Lock()
        self._next_look_ms: int | None = None
        self._saving = False

    def performers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return the executor for each type of effect."""
        return {
            DeleteLogBefore: lambda effect: self._start(self._delete(effect.position)),
            CleanProjections: lambda _effect: self._start(self._delete(0)),
            DiskStarving: lambda effect: self._start(self._starve(starving=effect.starving)),
        }

    def tick(self) -> None:
        """Check the disk once a second; first, complete a deletion that a crash interrupted."""
        now_ms = self._clock.monotonic_ms()
        if self._next_look_ms is None:
            self._start(self._delete(0))
        elif now_ms < self._next_look_ms:
            return
        self.look()

    def look(self) -> None:
        """Report to the core how full the disk is and how old the segments are."""
        store, wall_ms = self._store, self._clock.now_ms()
        now_ms = self._clock.monotonic_ms()
        self._next_look_ms = now_ms + LOOK_MS
        try:
            segments, step_ms = store.ages.look(
                Now(now_ms, wall_ms, self._boot), store.closed_segments()
            )
            total_bytes, free_bytes = store.usage()
        except OSError as error:
            self._failed(as_store_error(error, "checking disk usage"))
            return
        if step_ms:
            _log.warning(
                "clock-changed: the system clock was changed by %(step_s)+.1f s; the ages of log "
                "segments are kept",
                {"step_s": step_ms / 1_000},
            )
        self._post(
            DiskMeasured(
                total_bytes,
                free_bytes,
                wall_ms,
                time.localtime(wall_ms / 1_000).tm_hour,
                segments,
                store.deletable_end,
                store.space.full,
                self._events_projected(),
            )
        )
        if not self._saving and (data := store.ages.to_save()) is not None:
            self._saving = True
            self._start(self._save_ages(data))

    # -- background work ----------------------------------------------------------------------

    async def _delete(self, position: int) -> None:
        """Delete everything below `position`; with 0, only references to deleted log positions."""
        async with self._one:
            try:
                await self._delete_now(position)
            except Exception as error:  # noqa: BLE001 - bug or disk failure, it ends the process
                self._failed(error)
                return
        if position:
            self._post(LogShrunk(self._store.log_range()[0]))
            self._freed()

    async def _delete_now(self, position: int) -> None:
        deletion = self._store.deletion(position)
        for _ in deletion.forget():
            await asyncio.sleep(0)
        if not deletion.found:
            return
        try:
            await self._checkpoint()
        except DiskFull as error:
            _log.warning(
                "segments-uncheckpointed: deleting log segments without a checkpoint: %(error)s",
                {"error": error},
            )
        await self._in_thread(self._store.remove, deletion)

    async def _starve(self, *, starving: bool) -> None:
        self._store.hold_index(starving)
        reserve = self._store.reserve
        try:
            await self._in_thread(reserve.release if starving else reserve.take)
        except OSError as error:
            self._failed(as_store_error(error, "allocating the disk reserve"))

    async def _save_ages(self, data: bytes) -> None:
        try:
            await self._in_thread(self._store.ages.save, data)
        except OSError as error:
            if error.errno not in FULL:  # otherwise they are written with the next change
                self._failed(as_store_error(error, "writing the ages of log segments"))
        finally:
            self._saving = False

    async def _in_thread(self, work: Callable[..., object], *given: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._worker, work, *given)

    def close(self) -> None:
        """Wait for the thread; the tasks have ended."""
        self._worker.shutdown(wait=True)
