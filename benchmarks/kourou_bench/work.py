"""Workloads of `kourou bench KIND`: sending, consuming a backlog, end-to-end latency.

Every body contains random bytes of the configured size, made before the timer starts. Every run is
checked against the number of messages in the queues, because results with lost messages are
invalid.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.errors import Unavailable
from kourou.model.message import Message
from kourou.model.subscription import ConsumeFromWhere
from kourou_bench.figures import Figure, quantiles, rates
from kourou_bench.loading import stored

BODIES = 64
"""The number of different bodies; they are used in turn."""

WARM_UP_SHARE = 20
"""The warm-up sends one message per so many measured ones."""

BACKLOG_CHUNK = 2_000
STUCK_AFTER_S = 30.0
STAMP_BYTES = 8


class Settings(Protocol):
    """The part of kourou_bench.run.BenchSettings that workloads use."""

    @property
    def messages(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def handler(self) -> str: ...


async def send(client: Client, topic: str, settings: Settings) -> list[Figure]:
    """Keep `in_flight` sends in flight, each of one message or one batch."""
    bodies = _bodies(settings.size)
    await _send_all(client, topic, bodies, max(1, settings.messages // WARM_UP_SHARE), settings)
    before = await stored(client, topic)
    began_ns = time.perf_counter_ns()
    took_ns = await _send_all(client, topic, bodies, settings.messages, settings)
    in_all_ns = time.perf_counter_ns() - began_ns
    await _check(client, topic, before + settings.messages)
    return [
        *rates("send", settings.messages, settings.size, in_all_ns),
        *quantiles("send answer", took_ns),
    ]


async def _send_all(
    client: Client, topic: str, bodies: list[bytes], messages: int, settings: Settings
) -> list[int]:
    """Send all messages; returns how long each send took until its reply, in ns."""
    took_ns: list[int] = []
    left = iter(range(0, messages, settings.batch))
    clock = time.perf_counter_ns

    async def send_singly() -> None:
        for number in left:
            began_ns = clock()
            await client.send(topic, bodies[number % BODIES])
            took_ns.append(clock() - began_ns)

    async def send_batches() -> None:
        for number in left:
            count = min(settings.batch, messages - number)
            batch = [bodies[place % BODIES] for place in range(number, number + count)]
            began_ns = clock()
            await client.send_batch(topic, batch)
            took_ns.append(clock() - began_ns)

    one = send_singly if settings.batch == 1 else send_batches
    async with asyncio.TaskGroup() as group:
        for _ in range(settings.in_flight):
            group.create_task(one())
    return took_ns


async def consume(client: Client, topic: str, settings: Settings) -> list[Figure]:
    """Store a backlog, then count how many messages one consumer receives per second."""
    bodies = _bodies(settings.size)
    before = await stored(client, topic)
    for at in range(0, settings.messages, BACKLOG_CHUNK):
        count = min(BACKLOG_CHUNK, settings.messages - at)
        await client.send_many(
            [Message(topic, bodies[place % BODIES]) for place in range(at, at + count)]
        )
    await _check(client, topic, before + settings.messages)
    counter = _Counter(before + settings.messages)
    wanted = ConsumerSettings(
        consumer_group=f"bench-consume-{os.getpid()}",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    batch = settings.handler == "batch"
    handler = counter.batch if batch else counter.message
    began_ns = time.perf_counter_ns()
    async with client.listen(topic, handler, settings=wanted, batch=batch and 1_000):
        await counter.wait()
    first_ns, last_ns = counter.first_ns, counter.last_ns
    return [
        *rates("consume", counter.goal, settings.size, last_ns - first_ns),
        Figure("first delivery after", "ms", (first_ns - began_ns) / 1_000_000),
    ]


class _Counter:
    """Counts the messages that handlers receive, on the event loop that waits for them."""

    def __init__(self, goal: int) -> None:
        self.goal = goal
        self.count = 0
        self.first_ns = 0
        self.last_ns = 0
        self._done = asyncio.Event()

    async def message(self, message: ReceivedMessage) -> None:
        """A handler for one message."""
        self._add(1)

    async def batch(self, messages: list[ReceivedMessage]) -> None:
        """A handler for a batch."""
        self._add(len(messages))

    def _add(self, count: int) -> None:
        if not self.count:
            self.first_ns = time.perf_counter_ns()
        self.count += count
        if self.count >= self.goal:
            self.last_ns = time.perf_counter_ns()
            self._done.set()

    async def wait(self) -> None:
        """Wait until all messages have arrived; raises Unavailable if none arrives for long."""
        seen = -1
        while not self._done.is_set():
            if seen == self.count:
                raise Unavailable(f"only {seen:,} of {self.goal:,} messages came")
            seen = self.count
            try:
                async with asyncio.timeout(STUCK_AFTER_S):
                    await self._done.wait()
            except TimeoutError:
                continue  # slow is not stuck: check whether any message has arrived


async def latency(client: Client, topic: str, settings: Settings) -> list[Figure]:
    """Send one message at a time; measures the time to the reply and to the handler."""
    arrived: asyncio.Queue[int] = asyncio.Queue()

    async def note(message: ReceivedMessage) -> None:
        now_ns = time.perf_counter_ns()
        arrived.put_nowait(now_ns - int.from_bytes(message.raw_body[:STAMP_BYTES], "big"))

    wanted = ConsumerSettings(
        consumer_group=f"bench-latency-{os.getpid()}",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    )
    padding = os.urandom(max(0, settings.size - STAMP_BYTES))
    answers_ns: list[int] = []
    deliveries_ns: list[int] = []

    async def once() -> None:
        began_ns = time.perf_counter_ns()
        await client.send(topic, began_ns.to_bytes(STAMP_BYTES, "big") + padding)
        answers_ns.append(time.perf_counter_ns() - began_ns)
        async with asyncio.timeout(STUCK_AFTER_S):
            deliveries_ns.append(await arrived.get())

    async with client.listen(topic, note, settings=wanted):
        await _until_listening(client, topic, arrived)
        for _ in range(max(1, settings.messages // WARM_UP_SHARE)):
            await once()
        answers_ns.clear()
        deliveries_ns.clear()
        for _ in range(settings.messages):
            await once()
    return [*quantiles("send answer", answers_ns), *quantiles("end to end", deliveries_ns)]


async def _until_listening(client: Client, topic: str, arrived: asyncio.Queue[int]) -> None:
    """Wait until the consumer has its queues: a group that starts at the end misses earlier
    messages.
    """
    stats = await client.admin.topics.stats(topic)
    stamp = time.perf_counter_ns().to_bytes(STAMP_BYTES, "big")
    for queue in stats:
        while True:
            await client.send(topic, stamp, queue=queue)
            try:
                async with asyncio.timeout(0.5):
                    await arrived.get()
                break
            except TimeoutError:
                continue  # the consumer does not have this queue yet
    while not arrived.empty():
        arrived.get_nowait()


async def _check(client: Client, topic: str, expected: int) -> None:
    found = await stored(client, topic)
    if found != expected:
        raise Unavailable(f"{found:,} messages are stored, not {expected:,}: results are invalid")


def _bodies(size: int) -> list[bytes]:
    return [os.urandom(size) for _ in range(BODIES)]


WORK: dict[str, Callable[..., Awaitable[list[Figure]]]] = {
    "send": send,
    "consume": consume,
    "latency": latency,
}
