"""Messages that come later: after the delay of a level, never before."""

from __future__ import annotations

import asyncio
import os
import time

from kourou import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
LEVELS = (2, 1, 0)
"""Of the broker's messageDelayLevel: 1 is a second, 2 are five as a rule; 0 is no delay."""


async def main() -> None:
    """Send three; they come in the order of their delays."""
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
