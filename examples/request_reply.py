"""Request and reply: send a message, and wait for the reply of the consumer that handles it."""

from __future__ import annotations

import asyncio
import os

from kourou import Client, ReceivedMessage

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def double(message: ReceivedMessage) -> str:
    """The return value of the handler is the reply."""
    return str(2 * int(message.body))


async def main() -> None:
    """One client replies to the requests of another."""
    async with Client(ADDRESS, group="calculators") as answering:
        await answering.admin.topics.create("request-reply", queues=1)
        async with (
            answering.listen("request-reply", double, body_type=str, replies=True),
            Client(ADDRESS, group="askers") as asking,
        ):
            for number in (21, 1_000):
                reply = await asking.request("request-reply", str(number), body_type=str)
                print(f"2 * {number} = {reply.body}")


if __name__ == "__main__":
    asyncio.run(main())
