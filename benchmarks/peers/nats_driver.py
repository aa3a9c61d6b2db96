"""NATS JetStream's driver in a comparison, with nats-py: `python nats_driver.py key=value …`.

A stream in files stands for a topic. A publish waits for the stream's acknowledgement. The backlog
is loaded with publishes that are not awaited individually, and counted afterwards. Consumers pull;
a handler for single messages acknowledges each, a handler for batches acknowledges the last message
of each batch, which covers the earlier ones.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType

from kourou_bench.driving import (
    BODIES,
    Drain,
    DriverOptions,
    Measure,
    Outcome,
    Pings,
    first_send,
    flooding,
    run_driver,
)

FETCH = 1_000
LOAD_CHUNK = 2_000


async def _connect(options: DriverOptions) -> tuple[Client, JetStreamContext]:
    client = await nats.connect(options.address, connect_timeout=1)
    return client, client.jetstream(timeout=30)


async def _stream(js: JetStreamContext, name: str) -> str:
    await js.add_stream(name=name, subjects=[name], storage=StorageType.FILE)
    return name


async def _stored(js: JetStreamContext, name: str) -> int:
    return (await js.stream_info(name)).state.messages


@asynccontextmanager
async def _first_send(options: DriverOptions) -> AsyncIterator[Measure]:
    body = options.bodies()[0]

    async def attempt() -> None:
        client, js = await _connect(options)
        await _stream(js, "bench-first")
        await js.publish("bench-first", body)
        await client.close()

    async def measure(_: float) -> Outcome:
        return await first_send(attempt, nats.errors.Error, OSError)

    yield measure


@asynccontextmanager
async def _send(options: DriverOptions) -> AsyncIterator[Measure]:
    client, js = await _connect(options)
    name = await _stream(js, "bench-send")
    bodies = options.bodies()
    yield flooding(
        options, lambda number: js.publish(name, bodies[number % BODIES]), lambda: _stored(js, name)
    )
    await client.close()


async def _load(client: Client, js: JetStreamContext, name: str, options: DriverOptions) -> None:
    bodies = options.bodies()
    for at in range(0, options.messages, LOAD_CHUNK):
        count = min(LOAD_CHUNK, options.messages - at)
        for place in range(at, at + count - 1):
            await client.publish(name, bodies[place % BODIES])
        await js.publish(name, bodies[at % BODIES])  # implies that earlier ones are stored


@asynccontextmanager
async def _consume(options: DriverOptions) -> AsyncIterator[Measure]:
    client, js = await _connect(options)
    name = await _stream(js, "bench-consume")
    await _load(client, js, name, options)
    members = itertools.count()

    async def measure(_: float) -> Outcome:
        drain = await _drain(js, name, f"bench-{next(members)}", options)
        return drain.outcome(await _stored(js, name))

    yield measure
    await client.close()


async def _drain(js: JetStreamContext, name: str, durable: str, options: DriverOptions) -> Drain:
    drain = Drain(options.messages, options.size)
    batch = options.handler == "batch"
    subscription = await js.pull_subscribe(
        name,
        durable=durable,
        config=ConsumerConfig(
            ack_policy=AckPolicy.ALL if batch else AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
            max_ack_pending=100_000,
        ),
    )

    async def take_batch(messages: list[Msg]) -> None:
        drain.take([message.data for message in messages])

    async def take_one(message: Msg) -> None:
        drain.take_one(message.data)

    async def pull() -> None:
        while drain.handed < drain.goal:
            messages = await subscription.fetch(FETCH, timeout=30)
            if batch:
                await take_batch(messages)
                await messages[-1].ack()
            else:
                for message in messages:
                    await take_one(message)
                    await message.ack()

    async with asyncio.TaskGroup() as group:
        group.create_task(pull())
        group.create_task(drain.wait())
    return drain


@asynccontextmanager
async def _latency(options: DriverOptions) -> AsyncIterator[Measure]:
    client, js = await _connect(options)
    name = await _stream(js, "bench-latency")
    pings = Pings(options, lambda body: js.publish(name, body))

    async def arrived(message: Msg) -> None:
        pings.arrive(message.data)

    await js.subscribe(name, durable="bench", cb=arrived)
    await pings.listening()
    yield pings.measuring(lambda: _stored(js, name))
    await client.close()


WORKS = {"first-send": _first_send, "send": _send, "consume": _consume, "latency": _latency}

if __name__ == "__main__":
    sys.exit(run_driver(sys.argv[1:], WORKS))
