"""The effect executor of a broker: carries out what its core decided.

State: soft (the flush in progress, what is to be projected); the log belongs to the store.

Appends are written immediately and replies are sent right after them: a send does not wait for
consume queues and key index. These are projected at the end of the loop iteration if consumers wait
for the messages, otherwise within PROJECT_WITHIN_S, in a batch, and before any request that may
read them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from kourou.broker.storage.retention_executor import RetentionExecutor
from kourou.broker.telemetry.measurements import Measurements
from kourou.clock import Clock
from kourou.engine.effects import (
    Announce,
    Append,
    ConfigChanged,
    CopyChunk,
    CopyCompleted,
    DropTopic,
    Effect,
    Flush,
    Project,
    SaveEpochs,
    Wake,
)
from kourou.engine.inputs import (
    Copied,
    Dispatched,
    Flushed,
    Input,
    LogWritten,
    NotCopied,
    SpaceChanged,
    StoreFailed,
)
from kourou.errors import Corrupt, DiskFull, Rejected
from kourou.model.limits import QUEUE_UNIT_BYTES
from kourou.runtime import LogWarning, Tick
from kourou.service.protocol_server import ProtocolServers
from kourou.store.flush_schedule import FlushPolicy, FlushSchedule
from kourou.store.store import Store

_log = logging.getLogger("kourou.broker")

CHECKPOINT_RESTS = 9
"""After a checkpoint, the pause until the next one is so many times its duration.

With 10,000 queues a checkpoint takes seconds; it should not use more than a tenth of the disk.
"""
CHECKPOINT_REST_MS_MAX = 20_000
"""Limit of that pause, because a restart reads everything since the last checkpoint again."""

SPACE_RETRY_MS = 1_000
INDEX_RETRY_MS = 1_000
PROJECT_WITHIN_S = 0.005
PROJECT_BYTES_MAX = 1 << 18
"""Projection starts immediately when this many bytes are not projected."""

TICK_MS_MAX = 100
TICK_MS_MIN = 10


class EffectExecutor:
    """Executes effects. Everything except the two worker threads runs on the service's loop."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        log_flush: FlushPolicy,
        queue_flush: FlushPolicy,
        write_out: FlushPolicy,
        protocols: ProtocolServers,
        post: Callable[[Input], None],
        config_changed: Callable[[str], None],
        register_now: Callable[[int], None],
        failed: Callable[[BaseException], None],
        events_projected: Callable[[], int | None] = lambda: None,
        measurements: Measurements | None = None,
        appended: Callable[[int], None] = lambda _end: None,
        flushed: Callable[[int], None] = lambda _position: None,
    ) -> None:
        self._measurements = measurements or Measurements()
        self._on_appended, self._on_flushed = appended, flushed
        self._store = store
        self._clock = clock
        self._reply = protocols.reply
        self._protocols = protocols
        self._post = post
        self._config_changed = config_changed
        self._register_now = register_now
        self._failed = failed
        self._flusher = ThreadPoolExecutor(1, "kourou-flush")
        self._allocator = ThreadPoolExecutor(1, "kourou-allocate")
        now_ms = clock.monotonic_ms()
        self._schedule = FlushSchedule(log_flush, now_ms)
        self._checkpoints = FlushSchedule(queue_flush, now_ms)
        self._units_dirty_bytes = 0
        self._checkpointing = False
        self._flushing = self._flush_again = False
        self._allocating = False
        self._space_retry_ms = 0
        self._index_retry_ms = 0
        self._dispatch_due: asyncio.Handle | None = None
        self._dispatch_soon = self._dispatch_retry = False
        self._faulted = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._settled: asyncio.Future[None] | None = None
        self._waking: asyncio.TimerHandle | None = None
        self._write_out: WriteOutExecutor | None = None
        policies = [log_flush, queue_flush]
        if store.staged:
            policies.append(write_out)
            self._write_out = WriteOutExecutor(
                store,
                clock,
                write_out,
                post=post,
                start=self._start,
                written=self._written_out,
                failed=self._fail,
            )
        self.tick_ms = tick_ms_of(policies)
        self._copies = CopyExecutor(store, post=post, copied=self.copied)
        self._retention = RetentionExecutor(
            store,
            clock,
            post=post,
            start=self._start,
            checkpoint=self._checkpoint_now,
            freed=self._space_freed,
            failed=self._fail,
            events_projected=events_projected,
        )

    def performers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return the executor for each type of effect."""
        return {
            Append: self._append,
            Project: lambda _effect: self._dispatch_now(),
            Flush: self._flush,
            **self._protocols.performers(),
            ConfigChanged: lambda effect: self._config_changed(effect.table),
            DropTopic: self._drop_topic,
            Announce: lambda effect: self._register_now(effect.number),
            LogWarning: lambda effect: effect.write(_log),
            Wake: self._wake,
            SaveEpochs: lambda effect: self._store.save_epochs(effect.pairs),
            CopyCompleted: lambda _effect: self._store.copy_completed(),
            **self._copies.performers(),
            **self._retention.performers(),
        }

    # -- the log ------------------------------------------------------------------------------

    def _append(self, effect: Append) -> None:
        self._store.append(effect.pieces, effect.blanks, effect.end, effect.records)
        self._appended()
        self._on_appended(effect.end)

    def copied(self) -> None:
        """Handle bytes that were copied from another replica to the end of the log."""
        self._appended()
        self._dispatch_now()

    def _written_out(self) -> None:
        """Handle the end of a write-out of staged bytes to the log's files."""
        self._written()
        self._dispatch_now()

    def _appended(self) -> None:
        """Handle growth of the log, by this broker's appends or by copied bytes."""
        if self._write_out is None:
            self._written()
        else:
            self._write_out.appended()
        if self._store.space_wanted and self._clock.monotonic_ms() >= self._space_retry_ms:
            self._allocate()

    def _written(self) -> None:
        """Handle growth of the log's files: schedule projection, start a flush if one is due."""
        if self._dispatch_due is None:
            loop = asyncio.get_running_loop()
            self._dispatch_due = loop.call_later(PROJECT_WITHIN_S, self.dispatch)
        if not self._dispatch_soon and self._store.dispatch_behind_bytes > PROJECT_BYTES_MAX:
            self._dispatch_now()
        if not self._flushing:
            self._flush_if_woken()

    def _dispatch_now(self) -> None:
        """Project what was written at the end of this loop iteration."""
        if self._dispatch_due is not None and not self._dispatch_soon:
            self._dispatch_due.cancel()
            self._dispatch_due = asyncio.get_running_loop().call_soon(self.dispatch)
            self._dispatch_soon = True

    def dispatch_written(self) -> None:
        """Project written messages whose projection is delayed, because they may be read now."""
        if self._dispatch_due is not None:
            self.dispatch()

    def dispatch(self) -> None:
        """Project what was written since the last call, and report it to the core."""
        if self._dispatch_due is not None:
            self._dispatch_due.cancel()
            self._dispatch_due = None
            self._dispatch_soon = False
        try:
            advanced = self._store.dispatch()
        except Exception as error:  # noqa: BLE001 - bug or disk failure, it ends the process
            self._fail(error)
            return
        if advanced:
            self._units_dirty_bytes += QUEUE_UNIT_BYTES * sum(
                one.max_offset - one.first_offset for one in advanced
            )
            queues = [(one.topic, one.queue_id, one.max_offset) for one in advanced]
            self._post(Dispatched(queues, self._store.indexed))
        if self._store.dispatch_behind_bytes and self._store.fault is None:
            # A full disk: the queues catch up at one of the next ticks.
            self._dispatch_retry = True

    def _drop_topic(self, effect: DropTopic) -> None:
        if self._write_out is not None:
            self._write_out.write_now()  # else its last messages would recreate its queues
        self.dispatch()
        self._store.remove_topic(effect.topic)

    def _flush(self, _effect: Flush) -> None:
        if self._flushing:
            self._flush_again = True
        else:
            self._start_flush()

    def _flush_if_woken(self) -> None:
        """Start a flush without waiting for the timer (flushCommitLogTimed=false)."""
        if self._schedule.woken(self._clock.monotonic_ms(), self._store.dirty_bytes):
            self._start_flush()

    def _start_flush(self) -> None:
        if self._faulted:
            return
        self._flushing = True
        self._flush_again = False
        loop = asyncio.get_running_loop()
        flush = self._flusher.submit(self._flush_store)
        # No task and no future of the loop, because there may be thousands of flushes a second.
        flush.add_done_callback(lambda done: loop.call_soon_threadsafe(self._flush_ended, done))

    def _flush_ended(self, flush: Future[int]) -> None:
        """Handle the end of a flush."""
        self._flushing = False
        if self._settled is not None:
            self._settled.set_result(None)
        error = flush.exception()
        if error is not None:  # bug or disk failure, it ends the process
            self._fail(error)
            return
        position = flush.result()
        self._schedule.flushed(self._clock.monotonic_ms())
        self._post(Flushed(position))
        self._on_flushed(position)
        if self._flush_again:
            self._start_flush()
        else:
            self._flush_if_woken()

    def _flush_store(self) -> int:
        """Flush on the flush thread; returns the position up to which the log is durable."""
        return self._measurements.flush(self._store.flush)

    async def _checkpoint_in_thread(self) -> None:
        """Write queues, index and recovery point to disk, to bound the work of a restart."""
        dirty_bytes, self._units_dirty_bytes = self._units_dirty_bytes, 0
        began_ms = self._clock.monotonic_ms()
        try:
            await self._checkpoint_now(whole=False)
        except DiskFull as error:
            self._units_dirty_bytes += dirty_bytes
            _log.warning(
                "checkpoint-failed: no checkpoint was written: %(error)s", {"error": error}
            )
        except Exception as error:  # noqa: BLE001 - bug or disk failure, it ends the process
            self._fail(error)
        else:
            now_ms = self._clock.monotonic_ms()
            rest_ms = min((now_ms - began_ms) * CHECKPOINT_RESTS, CHECKPOINT_REST_MS_MAX)
            self._checkpoints.flushed(now_ms, rest_ms=rest_ms)
        finally:
            self._checkpointing = False

    async def _checkpoint_now(self, *, whole: bool = True) -> None:
        """Plan a checkpoint here and save it on the flush thread, in the order of planning."""
        plan = self._store.plan_checkpoint(whole=whole)
        await asyncio.get_running_loop().run_in_executor(
            self._flusher, self._measurements.checkpoint, partial(self._store.save_checkpoint, plan)
        )

    def tick(self) -> None:
        """Start what is due (flush, checkpoint, log space); called several times a second."""
        if self._faulted:
            return
        if self._write_out is not None:
            self._write_out.tick()
        now_ms = self._clock.monotonic_ms()
        if not self._flushing:
            dirty_bytes = self._store.dirty_bytes
            if self._schedule.due(now_ms, dirty_bytes) or self._schedule.woken(now_ms, dirty_bytes):
                self._start_flush()
        if self._dispatch_retry or self._dispatch_due is not None:
            self._dispatch_retry = False
            self.dispatch()
        if self._store.indexed < self._store.dispatched and now_ms >= self._index_retry_ms:
            self._index_retry_ms = now_ms + INDEX_RETRY_MS
            self._catch_up_index()
        if not self._checkpointing and self._checkpoints.due(now_ms, self._units_dirty_bytes):
            self._checkpointing = True
            self._start(self._checkpoint_in_thread())
        if self._store.space_wanted and now_ms >= self._space_retry_ms:
            self._allocate()
        self._retention.tick()

    def _catch_up_index(self) -> None:
        try:
            self._store.catch_up_index()
        except Exception as error:  # noqa: BLE001 - bug or disk failure, it ends the process
            self._fail(error)

    def _wake(self, effect: Wake) -> None:
        """Schedule a tick that is due before the next regular one."""
        if self._waking is not None:
            self._waking.cancel()
        self._waking = asyncio.get_running_loop().call_later(effect.after_ms / 1_000, self._woken)

    def _woken(self) -> None:
        self._waking = None
        if not self._faulted:
            self._post(Tick(self._clock.now_ms(), self._clock.monotonic_ms()))

    def _space_freed(self) -> None:
        """Retry an allocation after old segments were deleted, because there may be space now."""
        if self._store.space_wanted:
            self._allocate()

    def _allocate(self) -> None:
        if not self._allocating and not self._faulted:
            self._allocating = True
            self._start(self._allocate_in_thread())

    async def _allocate_in_thread(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            space = await loop.run_in_executor(self._allocator, self._store.allocate_next)
        except Exception as error:  # noqa: BLE001 - bug or disk failure, it ends the process
            self._fail(error)
        else:
            if space.full:
                if not self._space_retry_ms:
                    _log.warning(
                        "disk-full: the disk is full: no further log segment can be allocated"
                    )
                self._space_retry_ms = self._clock.monotonic_ms() + SPACE_RETRY_MS
                self._retention.look()
            else:
                self._space_retry_ms = 0
            self._post(SpaceChanged(space.allocated_end, space.full))
        finally:
            self._allocating = False

    def _fail(self, error: BaseException) -> None:
        """Handle a disk failure: nothing is acknowledged any more, and the process ends."""
        if self._faulted:
            return
        self._faulted = True
        _log.critical("store-failed: the store failed: %(error)s", {"error": error})
        self._post(StoreFailed(str(error)))
        # The replies to that input are sent first; then the service's lifecycle ends with code 75.
        asyncio.get_running_loop().call_later(0.2, self._failed, error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for the threads; nothing new is started."""
        self._faulted = True
        if self._waking is not None:
            self._waking.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._flushing:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled
        self._flusher.shutdown(wait=True)
        self._allocator.shutdown(wait=True)
        if self._write_out is not None:
            self._write_out.close()
        self._retention.close()


def tick_ms_of(policies: Sequence[FlushPolicy]) -> int:
    """Return the tick interval: a quarter of the shortest flush interval, within limits."""
    shortest = min(policy.interval_ms for policy in policies)
    return max(TICK_MS_MIN, min(TICK_MS_MAX, shortest // 4))


# -- copies and staged writes ----------------------------------------------------------------------


class CopyExecutor:
    """Appends the leader's bytes to a follower's log, on the service's loop.

    `copied` is called after each chunk, to project it.
    """

    def __init__(
        self, store: Store, *, post: Callable[[Input], None], copied: Callable[[], None]
    ) -> None:
        self._store = store
        self._post = post
        self._copied = copied

    def performers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return the executor for each type of effect."""
        return {CopyChunk: self._copy}

    def _copy(self, effect: CopyChunk) -> None:
        """Append a chunk. Raises StoreFaulted, as an append does, which ends the process.

        A chunk that does not fit, or for which there is no space, is requested again.
        """
        store, position, data = self._store, effect.position, effect.data
        try:
            if effect.damage:
                end = store.append_damaged(position, data, effect.end, effect.damage)
            else:
                end = store.append_chunk(position, data)
        except (Corrupt, Rejected, DiskFull) as error:
            self._post(NotCopied(store.end, str(error)))
            return
        self._post(Copied(end))
        self._copied()


class WriteOutExecutor:
    """The commit service of transientStorePoolEnable: writes staged bytes to the log's files.

        every commitIntervalCommitLog, if at least commitCommitLogLeastPages pages are staged
        after commitCommitLogThoroughInterval since the last time, however little is staged
        immediately, when the last free buffer of the pool is taken

    After a write the core is notified, the records are projected, and a flush is started if one is
    due, in this order. It runs on the service's loop; `written` is called when more of the log is
    in its files.
    """

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
