"""Workers that come and go under the hands: what the core is told of each, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

from kourou.errors import FilterFailed, Unavailable
from kourou_filter_server.interface import (
    LOST,
    BatchEvaluated,
    EndWorker,
    EvaluateBatch,
    Input,
    StartWorker,
    WorkerEnded,
    WorkerReady,
)
from kourou_filter_server.worker_link import FilterResults, WorkerLimits
from kourou_filter_server.zygote_link import SandboxExecutor

START = StartWorker(1, "group", "name", 2, b"source")
JUDGE = EvaluateBatch(1, 1, "topic", 5, 1, (b"record",))


class FakeWorker:
    """A worker whose end and verdicts are given by hand."""

    def __init__(self) -> None:
        self.alive = True
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.told: asyncio.Future[FilterResults] = asyncio.get_running_loop().create_future()
        self.asked: tuple[Any, ...] = ()

    async def evaluate(self, *asked: Any) -> FilterResults:
        self.asked = asked
        return await self.told

    async def wait_ended(self) -> str:
        return await asyncio.shield(self.gone)

    def kill(self, reason: str = "") -> None:
        self.die(Unavailable("killed"))

    def die(self, error: Exception) -> None:
        self.alive = False
        if not self.told.done():
            self.told.set_exception(error)
            self.told.exception()
        if not self.gone.done():
            self.gone.set_result(str(error))


class FakeZygote:
    """A zygote that ends when it is told to."""

    def __init__(self) -> None:
        self.workers: list[FakeWorker] = []
        self.failure: Exception | None = None
        self.starts = 0
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        self.starts += 1
        self.gone = asyncio.get_running_loop().create_future()

    async def wait_ended(self) -> str:
        return await asyncio.shield(self.gone)

    async def start_worker(self, identity: Any, source: bytes, limits: WorkerLimits) -> FakeWorker:
        if self.failure is not None:
            raise self.failure
        self.workers.append(FakeWorker())
        return self.workers[-1]

    async def close(self) -> None:
        if not self.gone.done():
            self.gone.set_result("closed")


class Site:
    def __init__(self) -> None:
        self.zygote: Any = FakeZygote()
        self.told: list[Input] = []
        self.failed: list[BaseException] = []
        self.executor = SandboxExecutor(
            self.zygote, WorkerLimits(), self.told.append, self.failed.append
        )
        self.do = {kind.__name__: do for kind, do in self.executor.performers().items()}

    async def ready(self) -> FakeWorker:
        await self.executor.start()
        self.do["StartWorker"](START)
        await settle()
        assert isinstance(self.told.pop(), WorkerReady)
        worker: FakeWorker = self.zygote.workers[-1]
        return worker


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_worker_is_started_asked_and_ended() -> None:
    site = Site()
    worker = await site.ready()
    site.do["EvaluateBatch"](JUDGE)
    await settle()
    assert worker.asked == (b"topic", 5, (b"record",), 1)
    worker.told.set_result(FilterResults(b"\2", "oops", 7, "raised"))
    await settle()
    assert site.told == [BatchEvaluated(1, 1, b"\2", "raised", "oops", 7)]
    site.do["EndWorker"](EndWorker(1))
    assert not worker.alive
    await site.executor.stop()


async def test_a_worker_that_ends_over_a_batch_says_whose_fault_it_was_first() -> None:
    site = Site()
    worker = await site.ready()
    site.do["EvaluateBatch"](JUDGE)
    await settle()
    worker.die(FilterFailed("SIGSEGV", kind="died"))
    await settle()
    assert site.told[0] == WorkerEnded(1, "died", "SIGSEGV")
    await site.executor.stop()


async def test_one_that_ends_while_it_rests_is_nobodys_fault() -> None:
    site = Site()
    worker = await site.ready()
    worker.die(Unavailable("killed by another process"))
    await settle()
    assert [(each.kind, each.worker) for each in site.told] == [(LOST, 1)]  # type: ignore[union-attr]  # ends
    await site.executor.stop()


async def test_one_that_ends_just_behind_its_answer_is_not_forgotten() -> None:
    site = Site()
    worker = await site.ready()
    site.do["EvaluateBatch"](JUDGE)
    await settle()
    worker.told.set_result(FilterResults(b"\1", None, 7))
    worker.die(Unavailable("killed"))
    await settle()
    kinds = [type(each).__name__ for each in site.told]
    assert kinds[0] == "BatchEvaluated"
    assert set(kinds[1:]) == {"WorkerEnded"}
    await site.executor.stop()


async def test_a_filter_that_cannot_be_set_up_is_reported_as_such() -> None:
    site = Site()
    await site.executor.start()
    site.zygote.failure = FilterFailed("NameError", kind="setup")
    site.do["StartWorker"](START)
    await settle()
    assert site.told == [WorkerEnded(1, "setup", "NameError")]
    await site.executor.stop()


async def test_a_zygote_that_ends_is_started_again() -> None:
    site = Site()
    await site.ready()
    site.zygote.gone.set_result("SIGKILL")
    await settle()
    assert site.zygote.starts == site.executor.zygotes_started == 2
    assert not site.failed
    await site.executor.stop()
