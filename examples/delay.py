"""Delayed messages: they are delivered after the delay of their level, never earlier."""

from __future__ import annotations

import asyncio
import os
import time

from kourou import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
LEVELS = (2, 1, 0)
"""Levels of the broker's messageDelayLevel; by default 1 is 1 s and 2 is 5 s. 0 means no delay."""


async def main() -> None:
    """Send three messages; they arrive in the order of their delays."""
    async with Client(ADDRESS, group="reminders") as mq:
        for level in LEVELS:
            await mq.send("delay", f"level {level}", delay_level=level)
        left = len(LEVELS)
        async with mq.subscribe("delay", body_type=str) as reminders:
            async for reminder in reminders:
                waited_ms = time.time() * 1000 - reminder.born_timestamp
                print(f"{reminder.body} came after {waited_ms / 1000:.3f} s", flush=True)
                left -= 1
                if not left:
                    reminder.ack()
                    break


if __name__ == "__main__":
    asyncio.run(main())
