"""Kafka's driver in a comparison, with aiokafka: `python kafka_driver.py key=value …`.

A send waits for the broker's acknowledgement (acks=all, no linger). A batch is one explicit batch
for one partition. Consumers are groups; offsets are committed automatically by aiokafka.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import aiokafka.admin
import aiokafka.errors

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

PAGE = 1_000
LOAD_BATCH = 256
BATCH_BYTES = 1 << 20


@asynccontextmanager
async def _producer(options: DriverOptions) -> AsyncIterator[Any]:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=options.address, acks="all", linger_ms=0, max_batch_size=BATCH_BYTES
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def _consumer(
    options: DriverOptions, *topics: str, group: str | None = None, begin: str = "earliest"
) -> AsyncIterator[Any]:
    consumer = aiokafka.AIOKafkaConsumer(
        *topics,
        bootstrap_servers=options.address,
        group_id=group,
        auto_offset_reset=begin,
        max_partition_fetch_bytes=4 << 20,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _topic(options: DriverOptions, name: str) -> str:
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=options.address)
    await admin.start()
    try:
        await admin.create_topics([aiokafka.admin.NewTopic(name, options.queues, 1)])
    finally:
        await admin.close()
    return name


@asynccontextmanager
async def _counting(
    options: DriverOptions, topic: str
) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    queues = [aiokafka.TopicPartition(topic, number) for number in range(options.queues)]
    async with _consumer(options) as consumer:

        async def stored() -> int:
            ends = await consumer.end_offsets(queues)
            begins = await consumer.beginning_offsets(queues)
            return sum(ends.values()) - sum(begins.values())

        yield stored


async def _send_batch(
    producer: Any, topic: str, queue: int, bodies: list[bytes], first: int, count: int
) -> None:
    batch = producer.create_batch()
    for place in range(first, first + count):
        batch.append(key=None, value=bodies[place % BODIES], timestamp=None)
    await (await producer.send_batch(batch, topic, partition=queue))


@asynccontextmanager
async def _first_send(options: DriverOptions) -> AsyncIterator[Measure]:
    body = options.bodies()[0]

    async def attempt() -> None:
        async with _producer(options) as producer:
            await producer.send_and_wait("bench-first", body)

    async def measure(_: float) -> Outcome:
        return await first_send(attempt, aiokafka.errors.KafkaError, OSError)

    yield measure


@asynccontextmanager
async def _send(options: DriverOptions) -> AsyncIterator[Measure]:
    bodies = options.bodies()
    topic = await _topic(options, "bench-send")
    async with _producer(options) as producer, _counting(options, topic) as stored:
        queue = itertools.cycle(range(options.queues)).__next__

        def send_one(number: int) -> Awaitable[object]:
            body = bodies[number % BODIES]
            return producer.send_and_wait(topic, body, partition=queue())

        async def send_batch(number: int) -> None:
            await _send_batch(producer, topic, queue(), bodies, number, options.batch)

        send: Callable[[int], Awaitable[object]] = send_one if options.batch == 1 else send_batch
        yield flooding(options, send, stored)


@asynccontextmanager
async def _consume(options: DriverOptions) -> AsyncIterator[Measure]:
    topic = await _topic(options, "bench-consume")
    bodies = options.bodies()
    async with _producer(options) as producer:
        for number, first in enumerate(range(0, options.messages, LOAD_BATCH)):
            count = min(LOAD_BATCH, options.messages - first)
            await _send_batch(producer, topic, number % options.queues, bodies, first, count)
    groups = itertools.count()
    async with _counting(options, topic) as stored:

        async def measure(_: float) -> Outcome:
            drain = Drain(options.messages, options.size)
            async with _consumer(options, topic, group=f"bench-{next(groups)}") as consumer:
                await _drain(consumer, drain, options)
            return drain.outcome(await stored())

        yield measure


async def _drain(consumer: Any, drain: Drain, options: DriverOptions) -> None:
    async def take_batch(bodies: list[bytes]) -> None:
        drain.take(bodies)

    async def take_one(body: bytes) -> None:
        drain.take_one(body)

    async def pull() -> None:
        while drain.handed < drain.goal:
            pages = await consumer.getmany(timeout_ms=1_000, max_records=PAGE)
            for records in pages.values():
                if options.handler == "batch":
                    await take_batch([record.value for record in records])
                else:
                    for record in records:
                        await take_one(record.value)

    async with asyncio.TaskGroup() as group:
        group.create_task(pull())
        group.create_task(drain.wait())


@asynccontextmanager
async def _latency(options: DriverOptions) -> AsyncIterator[Measure]:
    topic = await _topic(options, "bench-latency")
    queue = itertools.cycle(range(options.queues)).__next__
    async with (
        _producer(options) as producer,
        _counting(options, topic) as stored,
        _consumer(options, topic, group="bench", begin="latest") as consumer,
    ):
        pings = Pings(options, lambda body: producer.send_and_wait(topic, body, partition=queue()))

        async def deliver() -> None:
            async for record in consumer:
                pings.arrive(record.value)

        delivering = asyncio.create_task(deliver())
        await pings.listening()
        yield pings.measuring(stored)
        delivering.cancel()


WORKS = {"first-send": _first_send, "send": _send, "consume": _consume, "latency": _latency}

if __name__ == "__main__":
    sys.exit(run_driver(sys.argv[1:], WORKS))
