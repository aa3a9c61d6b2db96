"""The commit service of transientStorePoolEnable: writes staged bytes to the log's files.

    every commitIntervalCommitLog, if at least commitCommitLogLeastPages pages are staged
    after commitCommitLogThoroughInterval since the last time, however little is staged
    immediately, when the last free buffer of the pool is taken

After a write the core is notified, the records are projected, and a flush is started if one is due,
in this order.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kourou.clock import Clock
from kourou.engine.inputs import Input, LogWritten
from kourou.store.flush_schedule import FlushPolicy, FlushSchedule
from kourou.store.store import Store


class WriteOutExecutor:
    """Runs on the service's loop; `written` is called when more of the log is in its files."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        policy: FlushPolicy,
        *,
        post: Callable[[Input], None],
        start: Callable[[Coroutine[Any, Any, None]], None],
        written: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._post = post
        self._start = start
        self._written = written
        self._failed = failed
        self._schedule = FlushSchedule(policy, clock.monotonic_ms())
        self._worker = ThreadPoolExecutor(1, "kourou-write")
        self._writing = False

    def appended(self) -> None:
        """Handle a staged append."""
        if self._store.staging_full and not self._writing:
            self._begin()

    def tick(self) -> None:
        """Write out, if it is due; called several times a second."""
        if not self._writing and self._schedule.due(
            self._clock.monotonic_ms(), self._store.unwritten_bytes
        ):
            self._begin()

    def write_now(self) -> None:
        """Write out synchronously; errors are raised to the caller."""
        self._post(LogWritten(self._store.write_out()))

    def _begin(self) -> None:
        self._writing = True
        self._start(self._write_in_thread())

    async def _write_in_thread(self) -> None:
        try:
            position = await asyncio.get_running_loop().run_in_executor(
                self._worker, self._store.write_out
            )
        except Exception as error:  # noqa: BLE001 - bug or disk failure, it ends the process
            self._failed(error)
            return
        finally:
            self._writing = False
        self._schedule.flushed(self._clock.monotonic_ms())
        self._post(LogWritten(position))
        self._written()
        self.appended()

    def close(self) -> None:
        """Wait for the thread; bytes that are still staged are written when the store is closed."""
        self._worker.shutdown(wait=True)
