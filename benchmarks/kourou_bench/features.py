"""Workloads of Kourou's driver for RocketMQ's features beyond plain sends and backlogs."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Sql
from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from kourou.model.message import DELAY_LEVELS, Message, parse_delay_levels
from kourou.model.subscription import ConsumeFromWhere, MessageModel
from kourou_bench.driving import (
    BODIES,
    Drain,
    DriverOptions,
    Measure,
    Outcome,
    Prepare,
    Send,
    flood,
    flooding,
    spread,
)
from kourou_bench.loading import load, plain, promised, stored, stored_at_last

ONEWAY_RUN = 1_000
"""One in so many one-way messages is sent with a reply, so that the sender cannot run far ahead of
the broker. (RocketMQ's client disconnects, and loses queued messages, when the reply to its
heartbeat is late.)
"""

PASSES = 100
"""A filter passes one message in so many."""

FILTER = Sql(f"region = 'north' AND amount > {PASSES - 2}")
"""Every message requires both comparisons."""

TOPIC = "bench-drain"
STAMP_DIGITS = 16
LOCAL_OFFSETS = "offsets"
"""Relative to the driver's working directory, which is temporary."""

Consumers = Callable[[AsyncExitStack, str, Drain], Coroutine[Any, Any, None]]
"""Open, on the stack, consumers of a group that pass the messages of `TOPIC` to a drain."""


def from_the_first(group: str, model: MessageModel = MessageModel.CLUSTERING) -> ConsumerSettings:
    """Settings of a new group that starts at the first message of a topic."""
    return ConsumerSettings(
        consumer_group=group,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        message_model=model,
    )


# -- sending --------------------------------------------------------------------------------------
@asynccontextmanager
async def oneway(options: DriverOptions) -> AsyncIterator[Measure]:
    """Most sends have no reply; the timer stops when the broker has stored all messages."""
    topic = "bench-oneway"
    bodies = options.bodies()
    async with Client(options.address) as client:
        await client.admin.topics.create(topic, queues=options.queues)

        async def send(number: int) -> None:
            if number % ONEWAY_RUN:
                await client.send_oneway(topic, bodies[number % BODIES])
            else:
                promised(await client.send(topic, bodies[number % BODIES]))

        yield _until_stored(options, client, topic, send)


@asynccontextmanager
async def transactions(
    options: DriverOptions, *, wait_for_end: bool = True
) -> AsyncIterator[Measure]:
    """Send half messages and commit each immediately; counts the messages visible to consumers."""
    topic = "bench-transactions"
    bodies = options.bodies()
    producer = ProducerSettings(wait_for_transaction_end=wait_for_end)
    async with Client(options.address, producer=producer) as client:
        await client.admin.topics.create(topic, queues=options.queues)

        @client.transaction_check(topic)
        async def committed(_: ReceivedMessage) -> bool:
            return True

        async def send(number: int) -> None:
            async with client.transaction(topic, bodies[number % BODIES]):
                pass

        if wait_for_end:
            yield flooding(options, send, lambda: stored(client, topic))
        else:
            yield _until_stored(options, client, topic, send)


def _until_stored(options: DriverOptions, client: Client, topic: str, send: Send) -> Measure:
    """Send without a reply for each message; the timer stops when all are stored."""

    async def measure(seconds: float) -> Outcome:
        before = await stored(client, topic)
        began_ns = time.perf_counter_ns()
        sent = await flood(send, in_flight=options.in_flight, batch=1, seconds=seconds)
        there = await stored_at_last(client, topic, before + sent.messages)
        took_s = (time.perf_counter_ns() - began_ns) / 1e9
        return Outcome(
            work=options.work,
            values={"rate": sent.messages / took_s},
            sent=sent.messages,
            stored=there - before,
            messages=sent.messages,
            seconds=took_s,
        )

    return measure


# -- backlogs -------------------------------------------------------------------------------------
@asynccontextmanager
async def ordered(options: DriverOptions) -> AsyncIterator[Measure]:
    """The messages of each queue must arrive in order and without gaps."""
    async with Client(options.address) as client:

        async def consume(stack: AsyncExitStack, group: str, drain: Drain) -> None:
            async def take(message: ReceivedMessage) -> None:
                queue = message.queue
                drain.take_next(
                    (queue.broker_name, queue.queue_id), message.offset, message.raw_body
                )

            await stack.enter_async_context(
                client.listen(TOPIC, take, settings=from_the_first(group), ordered=True)
            )

        yield await _draining(options, client, consume)


@asynccontextmanager
async def broadcast(options: DriverOptions) -> AsyncIterator[Measure]:
    """Two consumers, each of which receives all messages."""
    async with Client(options.address) as client:

        async def consume(stack: AsyncExitStack, group: str, drain: Drain) -> None:
            async def take(message: ReceivedMessage) -> None:
                drain.take_one(message.raw_body)

            wanted = from_the_first(group, MessageModel.BROADCASTING)
            for _ in range(2):
                own = ClientSettings(local_offsets_dir=LOCAL_OFFSETS)
                member = await stack.enter_async_context(Client(options.address, settings=own))
                await stack.enter_async_context(member.listen(TOPIC, take, settings=wanted))

        yield await _draining(options, client, consume, members=2)


@asynccontextmanager
async def filtered(options: DriverOptions) -> AsyncIterator[Measure]:
    """One message in a hundred passes the broker's filter."""
    async with Client(options.address) as client:

        async def consume(stack: AsyncExitStack, group: str, drain: Drain) -> None:
            async def take(message: ReceivedMessage) -> None:
                drain.take_one(message.raw_body)

            await stack.enter_async_context(
                client.listen(TOPIC, take, FILTER, settings=from_the_first(group))
            )

        yield await _draining(options, client, consume, share=PASSES)


async def _draining(
    options: DriverOptions,
    client: Client,
    consume: Consumers,
    *,
    members: int = 1,
    share: int = 1,
) -> Measure:
    """Store a backlog, which a new group consumes at each command.

    Each message is delivered to `members` consumers, or only one message in `share` is delivered.
    The rate counts messages that were delivered or filtered out.
    """
    bodies = options.bodies()
    groups = itertools.count()

    def sized(number: int) -> Message:
        properties = {"region": "north", "amount": str(number % PASSES)}
        return Message(TOPIC, bodies[number % BODIES], properties=properties)

    await client.admin.topics.create(TOPIC, queues=options.queues)
    await load(client, options.messages, plain(TOPIC, bodies) if share == 1 else sized)

    async def measure(_: float) -> Outcome:
        drain = Drain(options.messages * members // share, options.size)
        async with AsyncExitStack() as stack:
            await consume(stack, f"{TOPIC}-group-{next(groups)}", drain)
            await drain.wait()
        worked = options.messages * members
        return Outcome(
            work=options.work,
            values={"rate": worked / drain.seconds},
            sent=options.messages,
            stored=await stored(client, TOPIC),
            handed=drain.handed,
            due=drain.goal,
            messages=worked,
            seconds=drain.seconds,
        )

    return measure


# -- delays ---------------------------------------------------------------------------------------
class Lateness:
    """Records how late delayed messages arrive, and how many were pending when the first arrived.

    Bodies begin with the time of the send, in µs.

    State: soft.
    """

    def __init__(self, messages: int, size: int, delay_ms: int) -> None:
        self.drain = Drain(messages, size)
        self.late_ns: list[int] = []
        self.sent = 0
        self.waiting = -1
        self._delay_us = delay_ms * 1_000
        self._padding = b"x" * max(0, size - STAMP_DIGITS)

    def body(self) -> bytes:
        """The body of a message that is sent now."""
        return b"%016x" % (time.time_ns() // 1_000) + self._padding

    def take(self, body: bytes) -> None:
        """Called by a handler with the body of a message."""
        if self.waiting < 0:
            self.waiting = self.sent
        # Brokers count in milliseconds, so the delay starts at the millisecond of the send.
        sent_us = int(body[:STAMP_DIGITS], 16) // 1_000 * 1_000
        late_us = time.time_ns() // 1_000 - sent_us - self._delay_us
        if late_us < 0:
            self.drain.complaint = f"a message came {-late_us} µs early"
        self.late_ns.append(late_us * 1_000)
        self.drain.take_one(body)

    def outcome(self, there: int) -> Outcome:
        """The outcome of the workload `delayed`."""
        drain = self.drain
        return Outcome(
            work="delayed",
            values={
                "rate": drain.goal / drain.seconds,
                "waiting": float(self.waiting),
                **spread(self.late_ns),
            },
            sent=drain.goal,
            stored=there,
            handed=drain.handed,
            messages=drain.goal,
            seconds=drain.seconds,
        )


@asynccontextmanager
async def delayed(options: DriverOptions) -> AsyncIterator[Measure]:
    """Send messages of one delay level at a fixed pace; measures lateness and rate."""
    delay_ms = parse_delay_levels(DELAY_LEVELS)[options.delay_level - 1]
    numbers = itertools.count()
    async with Client(options.address) as client:

        async def measure(_: float) -> Outcome:
            topic = f"bench-delay-{next(numbers)}"
            await client.admin.topics.create(topic, queues=options.queues)
            lateness = Lateness(options.messages, options.size, delay_ms)

            async def take(message: ReceivedMessage) -> None:
                lateness.take(message.raw_body)

            async with client.listen(topic, take, settings=from_the_first(f"{topic}-group")):
                await _send_paced(client, topic, lateness, options)
                await lateness.drain.wait()
            return lateness.outcome(await stored(client, topic))

        yield measure


async def _send_paced(
    client: Client, topic: str, lateness: Lateness, options: DriverOptions
) -> None:
    numbers = iter(range(lateness.drain.goal))
    began = time.perf_counter()

    async def one_after_the_other() -> None:
        for number in numbers:
            if options.pace:
                left = began + number / options.pace - time.perf_counter()
                if left > 0:
                    await asyncio.sleep(left)
            promised(await client.send(topic, lateness.body(), delay_level=options.delay_level))
            lateness.sent += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(options.in_flight):
            group.create_task(one_after_the_other())


FEATURES: dict[str, Prepare] = {
    "oneway": oneway,
    "transactions": transactions,
    "transactions-unwaited": partial(transactions, wait_for_end=False),
    "ordered": ordered,
    "broadcast": broadcast,
    "filtered": filtered,
    "delayed": delayed,
}
