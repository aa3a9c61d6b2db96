"""Waits for what has no event to wait on, such as a thread of a library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WAIT_S = 60


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop run until the condition holds; raises TimeoutError after a minute."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
            await asyncio.sleep(0)
