"""Redis Streams' driver in a comparison, with redis-py: `python redis_driver.py key=value …`.

A stream stands for a topic. As redis-py requires, each send in flight has a connection: it sends
one XADD, or a pipeline of `batch` of them. A consumer reads with XREADGROUP and acknowledges the
entries with one XACK.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
import redis.exceptions

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

READ = 1_000
BLOCK_MS = 1_000
"""Shorter than redis-py's timeout for a reply."""

LOAD_CHUNK = 500
GROUP, MEMBER = "bench", "one"


@asynccontextmanager
async def _connection(options: DriverOptions, connections: int = 4) -> Any:
    host, _, port = options.address.partition(":")
    client = redis.asyncio.Redis(
        host=host, port=int(port), max_connections=connections + 2, protocol=3
    )
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def _first_send(options: DriverOptions) -> AsyncIterator[Measure]:
    body = options.bodies()[0]
    async with _connection(options) as client:

        async def measure(_: float) -> Outcome:
            return await first_send(
                lambda: client.xadd("bench-first", {"b": body}),
                redis.exceptions.RedisError,
                OSError,
            )

        yield measure


@asynccontextmanager
async def _send(options: DriverOptions) -> AsyncIterator[Measure]:
    name, bodies = "bench-send", options.bodies()
    async with _connection(options, options.in_flight) as client:

        def send_one(number: int) -> Awaitable[object]:
            return client.xadd(name, {"b": bodies[number % BODIES]})

        async def send_batch(number: int) -> None:
            await _add(client, name, bodies, number, options.batch)

        send: Callable[[int], Awaitable[object]] = send_one if options.batch == 1 else send_batch
        yield flooding(options, send, lambda: client.xlen(name))


async def _add(client: Any, name: str, bodies: list[bytes], first: int, count: int) -> None:
    pipeline = client.pipeline(transaction=False)
    for place in range(first, first + count):
        pipeline.xadd(name, {"b": bodies[place % BODIES]})
    await pipeline.execute()


@asynccontextmanager
async def _consume(options: DriverOptions) -> AsyncIterator[Measure]:
    name, bodies = "bench-consume", options.bodies()
    groups = itertools.count()
    async with _connection(options) as client:
        for at in range(0, options.messages, LOAD_CHUNK):
            await _add(client, name, bodies, at, min(LOAD_CHUNK, options.messages - at))

        async def measure(_: float) -> Outcome:
            drain = Drain(options.messages, options.size)
            await _drain(client, name, f"{GROUP}-{next(groups)}", drain, options)
            return drain.outcome(await client.xlen(name))

        yield measure


async def _drain(client: Any, name: str, group: str, drain: Drain, options: DriverOptions) -> None:
    await client.xgroup_create(name, group, id="0")

    async def take_batch(bodies: list[bytes]) -> None:
        drain.take(bodies)

    async def take_one(body: bytes) -> None:
        drain.take_one(body)

    while drain.handed < drain.goal:
        entries = await _read(client, name, group)
        if options.handler == "batch":
            await take_batch([fields[b"b"] for _, fields in entries])
        else:
            for _, fields in entries:
                await take_one(fields[b"b"])
        await client.xack(name, group, *[number for number, _ in entries])
    await drain.wait()


async def _read(client: Any, name: str, group: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The next entries; the reply's format depends on the protocol and redis-py's version."""
    answer = await client.xreadgroup(group, MEMBER, {name: ">"}, count=READ, block=BLOCK_MS)
    if not answer:
        return []
    if isinstance(answer, dict):
        (pages,) = answer.values()
        return [entry for page in pages for entry in page]
    ((_, entries),) = answer
    return entries


@asynccontextmanager
async def _latency(options: DriverOptions) -> AsyncIterator[Measure]:
    name = "bench-latency"
    async with _connection(options) as client:
        await client.xgroup_create(name, GROUP, id="$", mkstream=True)
        pings = Pings(options, lambda body: client.xadd(name, {"b": body}))

        measured = asyncio.Event()

        async def deliver() -> None:
            # Do not rely on cancellation alone: redis-py may swallow it in a blocking read.
            while not measured.is_set():
                for number, fields in await _read(client, name, GROUP):
                    pings.arrive(fields[b"b"])
                    await client.xack(name, GROUP, number)

        async with asyncio.TaskGroup() as group:
            group.create_task(deliver())
            try:
                await pings.listening()
                yield pings.measuring(lambda: client.xlen(name))
            finally:
                measured.set()


WORKS = {"first-send": _first_send, "send": _send, "consume": _consume, "latency": _latency}

if __name__ == "__main__":
    sys.exit(run_driver(sys.argv[1:], WORKS))
