"""Awaiting with a time limit that loses no cancellation.

State: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(work: Awaitable[T], timeout_s: float) -> T:
    """Await for at most this time. Raises TimeoutError.

    Not `asyncio.wait_for`: before Python 3.12 that loses a cancellation that comes when the work
    has just ended, and a task that never ends keeps everything waiting that stops it.
    """
    async with asyncio.timeout(timeout_s):
        return await work
