"""Timers of a travelling loop are due when its clock says so."""

from __future__ import annotations

import asyncio

import pytest

from kourou.clock import SystemClock
from kourou.testing.cluster_thread import TravelClock, TravelLoop


@pytest.fixture
def clock() -> TravelClock:
    return TravelClock()


def on_its_loop(clock: TravelClock, work) -> object:
    with asyncio.Runner(loop_factory=lambda: TravelLoop(clock)) as runner:
        return runner.run(work)


def test_it_goes_with_the_machine_and_ahead_of_it(clock):
    machine = SystemClock()
    clock.move(90_000)
    wall, monotonic = (clock.now_ms, machine.now_ms), (clock.monotonic_ms, machine.monotonic_ms)
    for ours, theirs in (wall, monotonic):
        before = theirs()
        assert before + 90_000 <= ours() <= theirs() + 90_000


def test_who_waits_an_hour_wakes_when_the_clock_is_moved(clock):
    async def waits() -> float:
        loop = asyncio.get_running_loop()
        began, rang = loop.time(), asyncio.Event()
        loop.call_later(3_600, rang.set)
        loop.call_soon(clock.move, 3_600_000)
        await rang.wait()
        return loop.time() - began

    assert 3_600 <= on_its_loop(clock, waits()) < 3_700


def test_a_timeout_counts_by_it(clock):
    async def late() -> None:
        asyncio.get_running_loop().call_soon(clock.move, 60_000)
        async with asyncio.timeout(59):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        on_its_loop(clock, late())


def test_timers_run_in_their_order_whatever_the_leap(clock):
    async def order() -> list[int]:
        loop, rang = asyncio.get_running_loop(), []
        last = asyncio.Event()
        loop.call_later(30, last.set)
        for seconds in (20, 5, 10):
            loop.call_later(seconds, rang.append, seconds)
        clock.move(86_400_000)
        await last.wait()
        return rang

    assert on_its_loop(clock, order()) == [5, 10, 20]


def test_time_never_steps_back(clock):
    with pytest.raises(AssertionError):
        clock.move(-1)
