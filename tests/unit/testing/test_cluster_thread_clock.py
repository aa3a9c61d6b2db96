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
