"""Blocking workloads of Kourou's driver: threads that use kourou.sync, like RocketMQ's client."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from kourou.client.client import Client as AsyncClient
from kourou.sync import Client
from kourou_bench.driving import (
    BODIES,
    NS_IN_S,
    DriverOptions,
    Flood,
    Measure,
    Outcome,
    Prepare,
)
from kourou_bench.loading import promised, stored

TOPIC = "bench-blocking"

BlockingSend = Callable[[int], object]
"""Send the message, or the batch that starts with the message, of this number."""


@asynccontextmanager
async def send(options: DriverOptions) -> AsyncIterator[Measure]:
    """Threads that send one message, or one batch, after the other."""
    bodies = options.bodies()

    def send_one(number: int) -> None:
        promised(client.send(TOPIC, bodies[number % BODIES]))

    def send_batch(number: int) -> None:
        batch = [bodies[place % BODIES] for place in range(number, number + options.batch)]
        promised(client.send_batch(TOPIC, batch)[-1])

    with Client(options.address) as client:
        async with _counted(options, send_one if options.batch == 1 else send_batch) as measure:
            yield measure


@asynccontextmanager
async def transactions(options: DriverOptions) -> AsyncIterator[Measure]:
    """Threads that send half messages and commit each immediately."""
    bodies = options.bodies()

    def commit(number: int) -> None:
        with client.transaction(TOPIC, bodies[number % BODIES]):
            pass

    with Client(options.address) as client:
        client.transaction_check(TOPIC)(lambda _: True)
        async with _counted(options, commit) as measure:
            yield measure


@asynccontextmanager
async def _counted(options: DriverOptions, send: BlockingSend) -> AsyncIterator[Measure]:
    async with AsyncClient(options.address) as admin:
        await admin.admin.topics.create(TOPIC, queues=options.queues)

        async def measure(seconds: float) -> Outcome:
            before = await stored(admin, TOPIC)
            done = await asyncio.to_thread(flood, send, options, seconds)
            return Outcome(
                work=options.work,
                values=done.values(),
                sent=done.messages,
                stored=await stored(admin, TOPIC) - before,
                messages=done.messages,
                seconds=done.in_all_ns / NS_IN_S,
            )

        yield measure


def flood(send: BlockingSend, options: DriverOptions, seconds: float) -> Flood:
    """Send from `in_flight` threads for `seconds`; sends in flight at the end still count."""
    clock = time.perf_counter_ns
    numbers = itertools.count(step=options.batch)
    began_ns = clock()
    until_ns = began_ns + int(seconds * NS_IN_S)

    def one_after_the_other() -> list[int]:
        return list(_timed(send, numbers, until_ns))

    with ThreadPoolExecutor(options.in_flight) as pool:
        threads = [pool.submit(one_after_the_other) for _ in range(options.in_flight)]
        took_ns = [one for thread in threads for one in thread.result()]
    return Flood(len(took_ns) * options.batch, clock() - began_ns, took_ns)


def _timed(send: BlockingSend, numbers: Iterator[int], until_ns: int) -> Iterator[int]:
    clock = time.perf_counter_ns
    while (sent_ns := clock()) < until_ns:
        send(next(numbers))
        yield clock() - sent_ns


BLOCKING: dict[str, Prepare] = {
    "blocking-send": send,
    "blocking-transactions": transactions,
}
