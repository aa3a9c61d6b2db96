"""The workload of `kourou bench spark`: topics through Spark, and the same rows by other means.

All bodies are random and different, because Parquet stores repeated values once and would be faster
than with real data. Messages also have a tag, a key and a trace context.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kourou.client.client import Client
from kourou.errors import TimedOut, Unavailable
from kourou.model.limits import PULL_MESSAGES_MAX
from kourou.model.message import Message, PullStatus
from kourou.service.os_processes import CpuReading
from kourou_bench.loading import LOAD_CHUNK, promised, stored_at_last
from kourou_bench.spark_costs import NETWORK, PARQUET, PULLS, STORE, WAYS, Pass

SINK_PROMISES = ("exactly-once", "at-least-once")
WARM_ROWS = 1_000
"""Rows that are written first and not counted."""

STREAM_TAG = "timed"
STREAM_WARM_TAG = "warm"
TICK_S = 0.02
"""Interval at which the stream's sender sends the events that are due."""

STREAM_WAIT_S = 120.0
NS_IN_MS = 1_000_000
_TAGS = ("CREATED", "PAID", "SHIPPED", "RETURNED")


async def fill(client: Client, topic: str, messages: int, size: int, queues: int) -> None:
    """Store messages with bodies of `size` bytes."""
    await client.admin.topics.create(topic, queues=queues)
    for begin in range(0, messages, LOAD_CHUNK):
        count = min(LOAD_CHUNK, messages - begin)
        noise = os.urandom(size * count)
        await client.send_many(
            [
                Message(
                    topic,
                    noise[place * size : (place + 1) * size],
                    tag=_TAGS[place % len(_TAGS)],
                    keys=(f"order-{begin + place}",),
                    properties={"traceparent": f"00-{begin + place:032x}-00f067aa0ba902b7-00"},
                )
                for place in range(count)
            ]
        )
    await stored_at_last(client, topic, messages)


# -- reading --------------------------------------------------------------------------------------
def table(spark: Any, topic: str, **options: str) -> Any:
    """A topic as a Spark data frame."""
    return spark.read.format("kourou").options(subscribe=topic, **options).load()


def round_of_reads(
    spark: Any, address: str, store: Path, topic: str, parquet: Path, messages: int
) -> dict[str, Pass]:
    """Read the rows once in each way."""
    ways: dict[str, Callable[[], int]] = {
        PARQUET: lambda: _read(spark.read.parquet(str(parquet))),
        NETWORK: lambda: _read(table(spark, topic, nameServer=address)),
        STORE: lambda: _read(table(spark, topic, path=str(store))),
        PULLS: lambda: asyncio.run(_pulled(address, topic)),
    }
    return {way: _timed(way, ways[way], messages) for way in WAYS}


def _read(frame: Any) -> int:
    from kourou_spark_etl.session import read_through  # import Spark only when it is measured

    return read_through(frame)


def _timed(way: str, work: Callable[[], int], messages: int) -> Pass:
    began_ns, before = time.perf_counter_ns(), CpuReading.of(os.getpid())
    rows = work()
    took_ns = time.perf_counter_ns() - began_ns
    used_ns = before.spent_ns()
    if rows != messages:
        raise Unavailable(f"{way}: {rows:,} rows of {messages:,}: results are invalid")
    return Pass(rows, took_ns, used_ns)


async def _pulled(address: str, topic: str) -> int:
    """Read with a plain pull consumer, queue after queue; every message becomes an object."""
    count = 0
    async with Client(address) as client:
        consumer = await client.pull_consumer()
        for queue in await consumer.queues(topic):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                pulled = await consumer.pull(queue, offset, count_max=PULL_MESSAGES_MAX)
                if pulled.status is not PullStatus.FOUND:
                    raise Unavailable(f"{queue!s} at {offset}: {pulled.status}")
                count += sum(len(message.raw_body) > 0 for message in pulled.messages)
                offset = pulled.next_offset
    return count


# -- writing --------------------------------------------------------------------------------------
def written(spark: Any, address: str, parquet: Path, rows: int, queues: int) -> dict[str, Pass]:
    """Write the same rows into a new topic for each delivery guarantee of the sink."""
    frame = spark.read.parquet(str(parquet)).select("value", "key", "tags").limit(rows)
    # A limit makes one partition, hence one sink task; persist, so that reading is not measured.
    source = frame.repartition(queues).persist()
    found: dict[str, Pass] = {}
    try:
        count = int(source.count())
        for promise in SINK_PROMISES:
            few = min(count, WARM_ROWS)
            _write(address, source.limit(few), promise, few, queues)
            found[promise] = _write(address, source, promise, count, queues)
    finally:
        source.unpersist()
    return found


def _write(address: str, frame: Any, promise: str, rows: int, queues: int) -> Pass:
    topic = f"bench-sink-{time.time_ns()}"
    asyncio.run(_created(address, topic, queues))

    def save() -> int:
        options = {"nameServer": address, "topic": topic, "semantics": promise}
        frame.write.format("kourou").options(**options).mode("append").save()
        return asyncio.run(_arrived(address, topic, rows))

    return _timed(f"sink, {promise}", save, rows)


async def _created(address: str, topic: str, queues: int) -> None:
    async with Client(address) as client:
        await client.admin.topics.create(topic, queues=queues)


async def _arrived(address: str, topic: str, rows: int) -> int:
    async with Client(address) as client:
        return await stored_at_last(client, topic, rows)


# -- a stream -------------------------------------------------------------------------------------
class Arrivals:
    """Measures how long rows take to arrive; Spark delivers batches on one of its own threads.

    Rows without STREAM_TAG only show that the query runs.

    State: soft.
    """

    def __init__(self, events: int) -> None:
        self._events = events
        self.waited_ns: list[int] = []
        self.batches = 0
        self.warm = threading.Event()
        self.done = threading.Event()

    def take(self, batch: Any, number: int) -> None:
        """The callback of `foreachBatch`."""
        rows = batch.select("tags", "value").toArrow().to_pydict()
        now_ns = time.time_ns()
        self.count(rows["tags"], rows["value"], now_ns)

    def count(self, tags: list[str | None], values: list[bytes], now_ns: int) -> None:
        """Count the rows of a batch that arrived at `now_ns`; a body is its send time in ns."""
        timed = [
            now_ns - int(value)
            for tag, value in zip(tags, values, strict=True)
            if tag == STREAM_TAG
        ]
        if STREAM_WARM_TAG in tags:
            self.warm.set()
        if timed:
            self.waited_ns += timed
            self.batches += 1
        if len(self.waited_ns) >= self._events:
            self.done.set()


def streamed(
    spark: Any, address: str, folder: Path, queues: int, rate: int, seconds: float
) -> tuple[list[int], int, int]:
    """Stream `rate` events per second for `seconds`.

    Returns the latency of each event in ns, the total time in ns, and the number of batches.
    """
    topic = "bench-stream"
    events = int(rate * seconds)
    arrivals = Arrivals(events)
    asyncio.run(_created(address, topic, queues))
    query = (
        spark.readStream.format("kourou")
        .options(nameServer=address, subscribe=topic, startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(arrivals.take)
        .option("checkpointLocation", str(folder / "stream"))
        .start()
    )
    try:
        began_ns = asyncio.run(_sent(address, topic, rate, events, arrivals.warm))
        if not arrivals.done.wait(STREAM_WAIT_S):
            raise TimedOut(f"{len(arrivals.waited_ns):,} of {events:,} events came")
        took_ns = time.time_ns() - began_ns
    finally:
        query.stop()
    if len(arrivals.waited_ns) != events:
        raise Unavailable(f"{len(arrivals.waited_ns):,} rows of {events:,}: results are invalid")
    return arrivals.waited_ns, took_ns, arrivals.batches


async def _sent(address: str, topic: str, rate: int, events: int, warm: threading.Event) -> int:
    """Send at a fixed rate once the query has delivered a first batch; returns the start time in
    ns.
    """
    async with Client(address) as client:

        async def send(count: int, tag: str) -> None:
            stamps = [b"%d" % time.time_ns() for _ in range(count)]
            for sent in await client.send_many([Message(topic, one, tag=tag) for one in stamps]):
                promised(sent)

        for _ in range(int(STREAM_WAIT_S)):
            await send(rate // 10 + 1, STREAM_WARM_TAG)
            if await asyncio.to_thread(warm.wait, 1.0):
                break
        else:
            raise TimedOut(f"no batch of a stream came within {STREAM_WAIT_S:.0f} s")
        began_ns = time.time_ns()
        sent = 0
        while sent < events:
            due = min(events, int((time.time_ns() - began_ns) * rate / 1e9) + 1)
            if due > sent:
                await send(due - sent, STREAM_TAG)
                sent = due
            await asyncio.sleep(TICK_S)
    return began_ns
