"""Runners call the handler and report once."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading

import pytest

from kourou.client.consumer import handlers
from kourou.client.consumer.handlers import CoroutineRunner, ThreadRunner
from kourou.client.introspection.running_info import ConsumeLog
from kourou.clock import SystemClock


class Reports:
    """Collects reports and says when enough have come; thread-safe by the GIL's appends."""

    def __init__(self, expected: int) -> None:
        self.done: list = []
        self.errors: list = []
        self.unwanted: set = set()
        self.expected = expected
        self.complete = threading.Event()

    def finished(self, item):
        self.done.append(item)
        self._count()

    def failed(self, item, error):
        self.errors.append((item, str(error)))
        self._count()

    def wanted(self, item):
        return item not in self.unwanted

    def _count(self):
        if len(self.done) + len(self.errors) == self.expected:
            self.complete.set()

    async def wait(self):
        assert await asyncio.get_running_loop().run_in_executor(None, self.complete.wait, 10)


def consume_log():
    return ConsumeLog(SystemClock(), logging.DEBUG)


async def coroutine_runner(handler, reports, concurrency=4):
    return CoroutineRunner(
        asyncio.get_running_loop(), handler, reports, consume_log(), concurrency=concurrency
    )


def thread_runner(handler, reports, threads_min=1, threads_max=3):
    return ThreadRunner(
        handler,
        reports,
        consume_log(),
        threads_min=threads_min,
        threads_max=threads_max,
        name="test",
    )


@pytest.fixture(params=["async", "threads"])
def make_runner(request):
    """Makes a runner of so many calls at once; coroutines call the handler in another thread."""

    async def make(handler, reports, at_once):
        if request.param == "threads":
            return thread_runner(handler, reports, threads_min=at_once, threads_max=at_once)

        async def handle_async(item):
            return await asyncio.to_thread(handler, item)

        return await coroutine_runner(handle_async, reports, concurrency=at_once)

    return make


@pytest.mark.feature("F306", "F186")
async def test_coroutines_are_awaited_on_the_applications_loop():
    loops = set()

    async def handler(item):
        loops.add(asyncio.get_running_loop())
        if item % 3 == 0:
            raise ValueError(f"no {item}")

    reports = Reports(200)
    runner = await coroutine_runner(handler, reports)
    threading.Thread(target=runner.submit, args=(list(range(200)),)).start()
    await reports.wait()
    assert loops == {asyncio.get_running_loop()}
    assert sorted(reports.done) == [n for n in range(200) if n % 3]
    assert (0, "no 0") in reports.errors
    assert await runner.close(1000)


async def test_an_item_does_not_wait_behind_a_handler_that_does(make_runner):
    gate, inside = threading.Event(), threading.Event()

    def handler(item):
        if item == 0:
            inside.set()
            assert gate.wait(60)
        else:
            gate.set()

    reports = Reports(2)
    runner = await make_runner(handler, reports, 2)
    runner.submit([0])
    assert await asyncio.to_thread(inside.wait, 60)
    runner.submit([1])
    await reports.wait()
    assert sorted(reports.done) == [0, 1]
    assert await runner.close(5000)


async def test_items_that_come_as_the_last_worker_ends_are_not_forgotten():
    loop = asyncio.get_running_loop()

    async def handler(item):
        if item < 5:
            # Runs after this worker has found nothing more to do, before it is known to be done.
            loop.call_soon(runner._take, [item + 1])

    reports = Reports(6)
    runner = await coroutine_runner(handler, reports)
    runner.submit([0])
    await reports.wait()
    assert reports.done == [0, 1, 2, 3, 4, 5]
    await runner.close(1000)


async def test_a_handler_that_never_waits_leaves_the_loop_to_others():
    seen_at_turn = []
    done = 0

    async def handler(_item):
        nonlocal done
        done += 1

    async def other():
        while done < 1000:
            seen_at_turn.append(done)
            await asyncio.sleep(0)

    reports = Reports(1000)
    runner = await coroutine_runner(handler, reports, concurrency=1)
    runner.submit(range(1000))
    await other()
    await reports.wait()
    assert len(seen_at_turn) > 5
    await runner.close(1000)


async def test_closing_waits_for_running_coroutines_and_starts_no_more():
    started, gate = asyncio.Event(), asyncio.Event()
    calls = []

    async def handler(item):
        calls.append(item)
        started.set()
        await gate.wait()

    reports = Reports(1)
    runner = await coroutine_runner(handler, reports, concurrency=1)
    runner.submit([1, 2, 3])
    await started.wait()
    closing = asyncio.ensure_future(runner.close(10_000))
    await asyncio.sleep(0)
    gate.set()
    assert await closing is True
    assert calls == [1]
    assert reports.done == [1]


async def test_items_of_lost_queues_are_passed_over():
    calls = []

    async def handler(item):
        calls.append(item)

    reports = Reports(2)
    reports.unwanted = {2}
    runner = await coroutine_runner(handler, reports, concurrency=1)
    runner.submit([1, 2, 3])
    await reports.wait()
    assert calls == [1, 3]
    await runner.close(1000)


async def test_the_most_threads_win_over_the_least():
    runner = thread_runner(print, Reports(1), threads_min=3, threads_max=2)
    assert runner.threads == 2
    assert await runner.close(5000)


async def test_a_function_that_gives_a_coroutine_has_failed():
    async def work(item):
        return item

    reports = Reports(1)
    runner = thread_runner(lambda item: work(item), reports)
    runner.submit([1])
    await reports.wait()
    assert reports.done == []
    assert "the handler returned a coroutine, which is never awaited" in reports.errors[0][1]
    assert await runner.close(5000)


def test_whose_calls_must_be_awaited():
    class Called:
        async def __call__(self, item):
            return item

        async def method(self, item):
            return item

    called = Called()
    for handler in (called, called.method, functools.partial(called.method)):
        assert handlers.is_coroutine_handler(handler)
    assert not handlers.is_coroutine_handler(print)
    assert not handlers.is_coroutine_handler(Called)


async def test_closing_threads_waits_for_the_running_call():
    started, gate = threading.Event(), threading.Event()
    calls = []

    def handler(item):
        calls.append(item)
        started.set()
        gate.wait(60)

    reports = Reports(1)
    runner = thread_runner(handler, reports, threads_max=1)
    runner.submit([1, 2])
    await asyncio.get_running_loop().run_in_executor(None, started.wait, 10)
    assert await runner.close(1) is False
    gate.set()
    assert await runner.close(5000) is True
    assert calls == [1]


# -- handlers that leave by other ways than an Exception ------------------------------------------


async def test_ctrl_c_in_a_thread_is_reported_and_the_thread_lives():
    def handler(item):
        if item == 0:
            raise KeyboardInterrupt("gone")

    reports = Reports(2)
    runner = thread_runner(handler, reports, threads_max=1)
    runner.submit([0, 1])
    await reports.wait()
    assert (reports.errors, reports.done) == ([(0, "gone")], [1])
    assert await runner.close(5000)


async def test_a_worker_whose_task_was_cancelled_is_replaced(monkeypatch):
    monkeypatch.setattr(handlers, "REPLACE_AFTER_S", 0)

    async def handler(item):
        if item == 0:
            asyncio.current_task().cancel("by itself")
            await asyncio.Event().wait()

    reports = Reports(3)
    runner = await coroutine_runner(handler, reports, concurrency=1)
    runner.submit(range(3))
    await reports.wait()
    assert reports.errors == [(0, "by itself")]
    assert reports.done == [1, 2]
    assert await runner.close(1000)


async def test_a_generators_end_in_a_coroutine_is_reported_too(monkeypatch):
    monkeypatch.setattr(handlers, "REPLACE_AFTER_S", 0)

    async def handler(item):
        if item == 0:
            raise GeneratorExit("gone")

    reports = Reports(2)
    runner = await coroutine_runner(handler, reports, concurrency=1)
    runner.submit(range(2))
    await reports.wait()
    assert (reports.errors, reports.done) == ([(0, "gone")], [1])
    assert await runner.close(1000)


async def test_a_coroutine_cancelled_while_closing_is_not_reported():
    started = asyncio.Event()

    async def handler(_item):
        started.set()
        await asyncio.Event().wait()

    reports = Reports(1)
    runner = await coroutine_runner(handler, reports)
    runner.submit([1])
    await started.wait()
    closing = asyncio.ensure_future(runner.close(10_000))
    await asyncio.sleep(0)  # closing has begun
    assert runner._closing
    (worker,) = runner._workers
    worker.cancel()
    assert await closing is True
    assert worker.cancelled()
    assert (reports.done, reports.errors) == ([], []), "it comes again elsewhere"


def test_ctrl_c_in_a_coroutine_is_reported_and_reaches_the_application(monkeypatch):
    monkeypatch.setattr(handlers, "REPLACE_AFTER_S", 0)

    async def handler(item):
        if item == 0:
            raise KeyboardInterrupt("ctrl-c")

    async def start():
        runner = await coroutine_runner(handler, reports, concurrency=1)
        runner.submit([0, 1])
        return runner

    loop = asyncio.new_event_loop()
    reports = Reports(2)
    try:
        runner = loop.run_until_complete(start())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(reports.wait())
        assert reports.errors == [(0, "ctrl-c")]
        loop.run_until_complete(reports.wait())
        assert reports.done == [1], "an application that goes on gets the others"
        loop.run_until_complete(runner.close(1000))
    finally:
        loop.close()
