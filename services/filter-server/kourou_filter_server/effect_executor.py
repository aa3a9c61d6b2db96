"""Executes the effects on workers: starts, uses and ends them, and restarts the zygote.

The end of a worker is posted to the core once if the core knows the worker. When the zygote ends,
its workers end with it. It is restarted, and worker starts wait for it.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from kourou.errors import FilterFailed, KourouError
from kourou_filter_server.effects import EndWorker, Judge, StartWorker
from kourou_filter_server.inputs import LOST, Input, Judged, WorkerEnded, WorkerReady
from kourou_filter_server.worker_link import Worker, WorkerIdentity, WorkerLimits
from kourou_filter_server.zygote_link import Zygote

_log = logging.getLogger("kourou.filter-server")

START_AGAIN_S = 1.0
"""The interval between attempts to start the zygote, and the delay after a failed fork."""

_NS_PER_US = 1_000


class SandboxExecutor:
    """Executes effects on workers. `failed` is called if the zygote can never be restarted."""

    def __init__(
        self,
        zygote: Zygote,
        limits: WorkerLimits,
        post: Callable[[Input], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._zygote = zygote
        self._limits = limits
        self._post = post
        self._failed = failed
        self._workers: dict[int, Worker] = {}
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._batches: set[asyncio.Task[None]] = set()
        self._judging: set[int] = set()
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.zygotes_started = 0

    def performers(self) -> dict[type[Any], Callable[[Any], None]]:
        """The executor of each type of effect on workers."""
        return {StartWorker: self._start, Judge: self._judge, EndWorker: self._end}

    # -- startup and shutdown ---------------------------------------------------------------------

    async def start(self) -> None:
        """Start the zygote. Raises ConfigError, which names the missing layers, or Unavailable."""
        await self._zygote.start()
        self.zygotes_started += 1
        self._up.set()
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End the zygote and all workers, and wait until they are gone."""
        tasks = [*self._lives.values(), *self._batches]
        if self._keeper is not None:
            tasks.append(self._keeper)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._zygote.close()

    async def _keep(self) -> None:
        try:
            while True:
                reason = await self._zygote.wait_ended()
                self._up.clear()
                _log.warning("%s; restarting it", reason)
                await self._start_again()
                self.zygotes_started += 1
                self._up.set()
        except KourouError as error:  # the sandbox has lost a layer
            self._failed(error)

    async def _start_again(self) -> None:
        while True:
            try:
                await self._zygote.start()
            except KourouError as error:
                if not error.retryable:
                    raise
                _log.error("filters cannot run: %s", error)
                await asyncio.sleep(START_AGAIN_S)
            else:
                return

    # -- workers ----------------------------------------------------------------------------------

    def _start(self, effect: StartWorker) -> None:
        number = effect.worker
        life = asyncio.get_running_loop().create_task(self._live(effect))
        self._lives[number] = life
        life.add_done_callback(lambda _: self._lives.pop(number, None))

    async def _live(self, effect: StartWorker) -> None:
        """Run a worker from its start to its end, and post both to the core."""
        number = effect.worker
        worker: Worker | None = None
        try:
            await self._up.wait()
            began_ns = time.monotonic_ns()
            identity = WorkerIdentity(effect.group, effect.name, effect.version)
            worker = await self._zygote.start_worker(identity, effect.source, self._limits)
            self._workers[number] = worker
            micros = (time.monotonic_ns() - began_ns) // _NS_PER_US
            self._post(WorkerReady(number, micros))
            reason = await worker.wait_ended()
            if number not in self._judging:  # otherwise `_ask` posts the end, with its cause
                self._post(WorkerEnded(number, LOST, reason))
        except FilterFailed as failure:
            self._post(WorkerEnded(number, failure.kind, str(failure)))
        except KourouError as error:
            if self._up.is_set():  # the machine lacks a resource
                await asyncio.sleep(START_AGAIN_S)
            self._post(WorkerEnded(number, LOST, str(error)))
        finally:
            self._workers.pop(number, None)
            if worker is not None:
                worker.kill()

    def _end(self, effect: EndWorker) -> None:
        worker = self._workers.pop(effect.worker, None)
        if worker is not None:
            worker.kill()
        life = self._lives.pop(effect.worker, None)
        if life is not None:
            life.cancel()

    # -- batches ----------------------------------------------------------------------------------

    def _judge(self, effect: Judge) -> None:
        worker = self._workers.get(effect.worker)
        if worker is None:  # it has just ended, and the core will receive WorkerEnded
            return
        self._judging.add(effect.worker)
        batch = asyncio.get_running_loop().create_task(self._ask(worker, effect))
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)

    async def _ask(self, worker: Worker, effect: Judge) -> None:
        number = effect.worker
        try:
            told = await worker.judge(
                effect.topic.encode(), effect.wall_ms, effect.records, effect.count
            )
        except FilterFailed as failure:
            self._post(WorkerEnded(number, failure.kind, str(failure)))
        except KourouError as error:
            self._post(WorkerEnded(number, LOST, str(error)))
        else:
            self._post(
                Judged(
                    number,
                    effect.batch,
                    told.verdicts,
                    told.kind,
                    told.failure or "",
                    told.micros,
                )
            )
        finally:
            self._judging.discard(number)
            if not worker.alive:  # the core ignores a second WorkerEnded
                self._post(WorkerEnded(number, LOST, "it ended with its last batch"))
