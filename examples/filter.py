"""Filter at the broker: by tags, and by properties with an SQL92 expression."""

from __future__ import annotations

import asyncio
import os

from kourou import Client, Message, Sql

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TAGS = ("TagA", "TagB", "TagC")

BY_TAGS = "TagA || TagC"
BY_PROPERTIES = Sql("TAGS IN ('TagA', 'TagB') AND a BETWEEN 0 AND 3")


async def read(mq: Client, group: str, wanted: str | Sql, count: int) -> None:
    """Consume `count` messages."""
    async with mq.subscribe("filter", wanted, group=group, body_type=str) as messages:
        async for message in messages:
            print(f"{group}: {message.body} ({message.tag}, a={message.properties['a']})")
            count -= 1
            if not count:
                message.ack()
                return


async def main() -> None:
    """Send nine messages; six pass a filter by tags, three a filter by properties."""
    async with Client(ADDRESS, group="filter-producers") as mq:
        await mq.send_many(
            [
                Message("filter", b"message %d" % a, tag=TAGS[a % 3], properties={"a": str(a)})
                for a in range(9)
            ]
        )
        await read(mq, "by-tags", BY_TAGS, 6)
        await read(mq, "by-properties", BY_PROPERTIES, 3)


if __name__ == "__main__":
    asyncio.run(main())
