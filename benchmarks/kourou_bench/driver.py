"""Kourou's driver in a comparison: `python -m kourou_bench.driver key=value …`."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.settings.client_settings import ConsumerSettings, ProducerSettings
from kourou.errors import KourouError
from kourou.model.subscription import ConsumeFromWhere
from kourou_bench.blocking import BLOCKING
from kourou_bench.driving import (
    BODIES,
    Drain,
    DriverOptions,
    Measure,
    Outcome,
    Pings,
    Prepare,
    first_send,
    flooding,
    run_driver,
)
from kourou_bench.features import FEATURES, from_the_first
from kourou_bench.loading import load, plain, promised, stored
from kourou_bench.run import BenchSettings
from kourou_bench.work import latency

BATCH_MAX = 1_000
"""The most messages that a batch handler receives at once."""


def main(arguments: Sequence[str]) -> int:
    """Prepare the workload that the arguments name, and run it at each command."""
    return run_driver(arguments, WORKS)


@asynccontextmanager
async def _first_send(options: DriverOptions) -> AsyncIterator[Measure]:
    body = options.bodies()[0]
    patient = ProducerSettings(send_timeout_ms=1_000)

    async def measure(_: float) -> Outcome:
        async with Client(options.address, producer=patient) as client:
            return await first_send(lambda: client.send("bench-first", body), KourouError)

    yield measure


@asynccontextmanager
async def _send(options: DriverOptions) -> AsyncIterator[Measure]:
    bodies = options.bodies()
    topics = [f"bench-send-{number}" for number in range(options.topics)]
    async with Client(options.address) as client:
        for topic in topics:
            await client.admin.topics.create(topic, queues=options.queues)
        if options.backlog:
            await load(client, options.backlog, plain(topics[0], [b"backlog"]))

        async def in_all() -> int:
            return sum([await stored(client, topic) for topic in topics])

        turn = itertools.cycle(topics).__next__

        async def send_one(number: int) -> None:
            promised(await client.send(turn(), bodies[number % BODIES]))

        async def send_batch(number: int) -> None:
            batch = [bodies[place % BODIES] for place in range(number, number + options.batch)]
            promised((await client.send_batch(turn(), batch))[-1])

        yield flooding(options, send_one if options.batch == 1 else send_batch, in_all)


@asynccontextmanager
async def _load_only(options: DriverOptions) -> AsyncIterator[Measure]:
    async with Client(options.address) as client:
        await client.admin.topics.create("bench-load", queues=options.queues)

        async def measure(_: float) -> Outcome:
            await load(client, options.messages, plain("bench-load", options.bodies()))
            there = await stored(client, "bench-load")
            return Outcome(work="load", values={}, sent=options.messages, stored=there)

        yield measure


@asynccontextmanager
async def _consume(options: DriverOptions) -> AsyncIterator[Measure]:
    topic = "bench-consume"
    groups = itertools.count()
    async with Client(options.address) as client:
        await client.admin.topics.create(topic, queues=options.queues)
        await load(client, options.messages, plain(topic, options.bodies()))

        async def measure(_: float) -> Outcome:
            drain = Drain(options.messages, options.size)
            await _drain(client, topic, f"{topic}-group-{next(groups)}", drain, options)
            return drain.outcome(await stored(client, topic))

        yield measure


async def _drain(
    client: Client, topic: str, group: str, drain: Drain, options: DriverOptions
) -> None:
    async def take_one(message: ReceivedMessage) -> None:
        drain.take_one(message.raw_body)

    async def take_batch(messages: list[ReceivedMessage]) -> None:
        drain.take([message.raw_body for message in messages])

    batch = options.handler == "batch"
    handler: Callable[..., Awaitable[None]] = take_batch if batch else take_one
    wanted = from_the_first(group)
    async with client.listen(topic, handler, settings=wanted, batch=BATCH_MAX if batch else False):
        await drain.wait()


@asynccontextmanager
async def _latency(options: DriverOptions) -> AsyncIterator[Measure]:
    topic = "bench-latency"
    async with Client(options.address) as client:
        await client.admin.topics.create(topic, queues=options.queues)
        pings = Pings(options, lambda body: client.send(topic, body))

        async def arrived(message: ReceivedMessage) -> None:
            pings.arrive(message.raw_body)

        wanted = ConsumerSettings(
            consumer_group=f"{topic}-group",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        )
        async with client.listen(topic, arrived, settings=wanted):
            await pings.listening()
            yield pings.measuring(lambda: stored(client, topic))


@asynccontextmanager
async def _pings(options: DriverOptions) -> AsyncIterator[Measure]:
    """Send a number of messages, one at a time, to a separate topic; each must arrive."""
    topic = f"bench-ping-{os.getpid()}"
    wanted = BenchSettings(None, options.messages, options.size, "async")
    async with Client(options.address, group=topic) as client:
        await client.admin.topics.create(topic, queues=1)

        async def measure(_: float) -> Outcome:
            figures = await latency(client, topic, wanted)
            values = {one.name: one.value for one in figures}
            count = options.messages
            return Outcome(work="pings", values=values, sent=count, stored=count)

        yield measure


WORKS: dict[str, Prepare] = {
    "first-send": _first_send,
    "send": _send,
    "load": _load_only,
    "consume": _consume,
    "latency": _latency,
    "pings": _pings,
    **FEATURES,
    **BLOCKING,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
