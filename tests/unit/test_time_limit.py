"""Waiting with a time limit."""

from __future__ import annotations

import asyncio

import pytest

from kourou.time_limit import within


async def test_work_has_its_result_or_its_time_is_up():
    assert await within(asyncio.sleep(0, "done"), 60) == "done"
    with pytest.raises(TimeoutError):
        await within(asyncio.Event().wait(), 0)


async def test_a_cancellation_that_comes_with_the_result_is_not_lost():
    work = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(within(work, 60))
    await asyncio.sleep(0)
    work.set_result("done")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
