"""Filter messages by their body with your own Python code, which runs in a filter server."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from kourou import Client, Filter

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


@Filter.define("large", note="over 100")
def large(message: Any, context: Any) -> bool:
    """Only the source of this function is uploaded; it cannot use other names of this module."""
    return bool(message.json["amount"] > 100)


class Nearby:
    """Import modules and compute constants once, in `set_up`."""

    def set_up(self, context: Any) -> None:
        """Called when a worker starts."""
        import math

        self.distance = math.dist
        self.depot = (0, 0)

    def match(self, message: Any, context: Any) -> bool:
        """True for paid orders within five miles of the depot."""
        place = message.json["at"]
        return message.tag == "paid" and self.distance(place, self.depot) < 5


async def read(mq: Client, group: str, wanted: Filter, count: int) -> None:
    """Consume `count` messages."""
    async with mq.subscribe("filter-python", wanted, group=group, body_type=dict) as messages:
        async for message in messages:
            print(f"{group}: {message.body}")
            count -= 1
            if not count:
                message.ack()
                return


async def main() -> None:
    """Send nine orders; four pass the filter by amount, two the filter by location."""
    async with Client(ADDRESS, group="filter-producers") as mq:
        for number in range(9):
            order = {"order": number, "amount": 25 * number, "at": [number, 2]}
            await mq.send("filter-python", order, tag="paid" if number % 2 else "open")
        await read(mq, "large-orders", large, 4)
        await read(mq, "near-orders", Filter(Nearby, name="nearby"), 2)


if __name__ == "__main__":
    asyncio.run(main())
