"""Loads backlogs with Kourou's client and counts stored messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kourou.client.client import Client
from kourou.errors import TimedOut, TopicNotFound, Unavailable
from kourou.model.message import Message, SendResult, SendStatus

LOAD_CHUNK = 2_000
POLL_S = 0.001
SETTLED_AFTER_S = 30.0


def promised(result: SendResult) -> None:
    """Raises Unavailable unless the status is SEND_OK."""
    if result.status is not SendStatus.SEND_OK:
        raise Unavailable(f"send status {result.status}: results are invalid")


async def load(client: Client, messages: int, making: Callable[[int], Message]) -> None:
    """Send `messages` messages; `making` builds each from its number."""
    for at in range(0, messages, LOAD_CHUNK):
        await client.send_many(
            [making(number) for number in range(at, min(at + LOAD_CHUNK, messages))]
        )


def plain(topic: str, bodies: Sequence[bytes]) -> Callable[[int], Message]:
    """Messages of a topic that have only a body; the bodies are used in turn."""
    return lambda number: Message(topic, bodies[number % len(bodies)])


async def stored(client: Client, topic: str) -> int:
    """The number of messages in the queues of an existing topic.

    A broker that was suspended is registered with its name server again a second later.
    """
    until = asyncio.get_running_loop().time() + SETTLED_AFTER_S
    while True:
        try:
            stats = await client.admin.topics.stats(topic)
        except TopicNotFound:
            if asyncio.get_running_loop().time() > until:
                raise
            await asyncio.sleep(POLL_S)
        else:
            return sum(one.max_offset - one.min_offset for one in stats.values())


async def stored_at_last(client: Client, topic: str, wanted: int) -> int:
    """Wait until the topic has `wanted` messages; raises TimedOut, with the actual number."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLED_AFTER_S
    while (found := await stored(client, topic)) < wanted:
        if loop.time() > until:
            raise TimedOut(f"{found:,} messages are stored, {wanted:,} were sent")
        await asyncio.sleep(POLL_S)
    return found
