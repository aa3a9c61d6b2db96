"""The workload of `kourou bench filter`: one backlog, read with each kind of filter.

Every kind of filter evaluates the same messages and passes the same ones: one in `PASSES`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Wanted
from kourou.client.filters.python_filter import Filter
from kourou.client.settings.client_settings import PullConsumerSettings
from kourou.errors import Unavailable
from kourou.model.message import Message
from kourou.service.os_processes import CpuReading
from kourou_bench.driving import Drain
from kourou_bench.features import FILTER, PASSES, from_the_first
from kourou_bench.filter_costs import Cost
from kourou_bench.loading import load, promised, stored

TOPIC = "bench-filter"
SERVERS_WITHIN_S = 20.0
LOOK_S = 0.05
HOLD_MS = 15_000
"""How long a filter server may wait until a message passes; the same as for push consumers."""

STARTS = 20
"""How many worker starts are measured."""

LOG = "kourou.client.consume"
"""The logger on which clients report failing filters."""

Keep = Callable[[ReceivedMessage], bool]


@Filter
def by_properties(message: Any, context: Any) -> bool:
    """The same condition as the SQL92 filter."""
    properties = message.properties
    return properties.get("region") == "north" and int(properties.get("amount", 0)) > 98


@Filter
def by_body(message: Any, context: Any) -> bool:
    """The same condition, evaluated on the body."""
    order = message.json
    return bool(order["region"] == "north" and order["amount"] > 98)


@Filter
def everything(message: Any, context: Any) -> bool:
    """The cheapest possible filter."""
    return True


class NearlyTooSlow:
    """Uses nearly all of its time limit while there are messages: 50 ms plus 1 ms per message."""

    def match(self, message: Any, context: Any) -> bool:
        """Not called, because `match_batch` exists."""
        return False

    def match_batch(self, messages: list[Any], context: Any) -> list[bool]:
        """Busy-wait."""
        from datetime import datetime, timedelta

        allowed = timedelta(milliseconds=40 + 0.8 * len(messages))
        until = datetime.now() + allowed  # noqa: DTZ005 - only used for a difference
        while datetime.now() < until:  # noqa: DTZ005 - likewise
            pass
        return [False] * len(messages)


nearly_too_slow = Filter(NearlyTooSlow)


@Filter
def endless(message: Any, context: Any) -> bool:
    """Runs until it is killed at its deadline, and until it is quarantined."""
    while message.offset >= 0:
        pass
    return False


def asked_by_client(message: ReceivedMessage) -> bool:
    """A filter in the consumer, which receives every message."""
    return bool(by_properties(message))


PLAIN = "plain pull"
WAYS: Mapping[str, tuple[Wanted, Keep | None]] = {
    PLAIN: ("*", None),
    "client-side": ("*", asked_by_client),
    "SQL92": (FILTER, None),
    "Python": (by_properties, None),
    "Python, body": (by_body, None),
    "Python, all pass": (everything, None),
}
"""What the consumer requests, and the filter that it applies to received messages itself."""

ALL_HANDED = frozenset({PLAIN, "Python, all pass"})


# -- the backlog ----------------------------------------------------------------------------------
def bodies(size: int) -> list[bytes]:
    """JSON of about this size, one body per amount; the padding is random."""
    made = []
    for amount in range(PASSES):
        fields = {"region": "north", "amount": amount, "text": ""}
        room = size - len(json.dumps(fields))
        text = os.urandom(max(0, room) // 2 + 1).hex()[: max(0, room)]
        made.append(json.dumps({**fields, "text": text}).encode())
    return made


async def fill(client: Client, messages: int, size: int, queues: int) -> int:
    """Store the backlog; returns how many of its messages pass.

    Raises Unavailable unless all of it is stored. The last message of every queue passes, so that
    no pull is parked at the end.
    """
    texts = bodies(size)

    def make(number: int) -> Message:
        amount = number % PASSES
        properties = {"region": "north", "amount": str(amount)}
        return Message(TOPIC, texts[amount], properties=properties)

    await client.admin.topics.create(TOPIC, queues=queues)
    await load(client, messages - queues, make)
    for queue in await client.admin.topics.stats(TOPIC):
        last = make(PASSES - 1)
        sent = await client.send(TOPIC, last.body, properties=last.properties, queue=queue)
        promised(sent)
    there = await stored(client, TOPIC)
    if there != messages:
        raise Unavailable(f"{there:,} messages are stored, {messages:,} were sent")
    return (messages - queues) // PASSES + queues


# -- cost a message -------------------------------------------------------------------------------
async def read_all(
    address: str, way: str, batch: int, passing: int, pids: Mapping[str, int]
) -> Cost:
    """Pull the backlog, `batch` messages at a time, one pull after the other.

    `pids` are the servers whose CPU time is counted. Raises Unavailable unless exactly `passing`
    messages pass the filter.
    """
    wanted, keep = WAYS[way]
    name = "".join(character for character in way if character.isalnum())
    settings = PullConsumerSettings(consumer_group=f"bench-{name}")
    handed = seen = sent_bytes = 0
    async with Client(address) as client:
        consumer = await client.pull_consumer(settings=settings)
        ends = {queue: await consumer.max_offset(queue) for queue in await consumer.queues(TOPIC)}
        await consumer.pull(next(iter(ends)), 0, expression=wanted, count_max=batch)  # warm up
        before = {part: CpuReading.of(pid) for part, pid in pids.items()}
        own_ns, began_ns = time.process_time_ns(), time.perf_counter_ns()
        for queue, end in ends.items():
            offset = 0
            while offset < end:
                found = await consumer.pull(
                    queue, offset, expression=wanted, count_max=batch, wait_ms=HOLD_MS
                )
                sent_bytes += sum(message.size for message in found.messages)
                kept = found.messages if keep is None else list(filter(keep, found.messages))
                handed += len(kept)
                offset = found.next_offset
            seen += offset
        wall_ns = time.perf_counter_ns() - began_ns
        spent = {part: reading.spent_ns() for part, reading in before.items()}
        spent["client"] = time.process_time_ns() - own_ns
    due = seen if way in ALL_HANDED else passing
    if handed != due:
        raise Unavailable(f"{way}: {handed:,} messages came, {due:,} were due: results are invalid")
    return Cost(seen, handed, sent_bytes, wall_ns, spent)


# -- throughput -----------------------------------------------------------------------------------
async def drain(address: str, wanted: Wanted, label: str, due: int) -> float:
    """Consume the backlog with a push consumer; returns the seconds until the last message."""
    drained = Drain(due, 1)

    async def take(message: ReceivedMessage) -> None:
        drained.take_one(message.raw_body)

    settings = from_the_first(TOPIC)
    began_ns = time.perf_counter_ns()
    async with (
        Client(address) as client,
        client.listen(TOPIC, take, wanted, settings=settings, group=f"bench-drain-{label}"),
    ):
        await drained.wait()
        return (time.perf_counter_ns() - began_ns) / 1e9


async def until_serving(address: str, count: int) -> None:
    """Wait until a new client finds `count` filter servers; raises Unavailable if it does not."""
    async with Client(address) as client:
        until = time.monotonic() + SERVERS_WITHIN_S
        while time.monotonic() < until:
            found = await client.admin.filters.servers(topic=TOPIC)
            if sum(map(len, found.values())) >= count:
                return
            await asyncio.sleep(LOOK_S)
    raise Unavailable(f"fewer than {count} filter servers are known after {SERVERS_WITHIN_S:g} s")


# -- workers --------------------------------------------------------------------------------------
async def start_times_ns(client: Client) -> list[int]:
    """How long workers took to become ready, from the request to the first sign of life."""
    took = []
    for _ in range(STARTS):
        tried = await client.admin.filters.try_out(
            "bench-start", by_body.name, TOPIC, source=by_body.source or "", count=1
        )
        took += [one.start_micros * 1_000 for one in tried.values()]
    return took


# -- hostile filters ------------------------------------------------------------------------------
@asynccontextmanager
async def hostile(address: str, label: str) -> AsyncIterator[None]:
    """Run two groups whose filters use as much CPU as they can, on the same broker's backlog.

    They are running when the block begins. Raises Unavailable if they do not run.
    """

    async def never(message: ReceivedMessage) -> None:
        raise AssertionError(f"no hostile filter lets anything through: {message.offset}")

    log = logging.getLogger(LOG)
    was = log.level
    log.setLevel(logging.CRITICAL)  # the groups are expected to stall; do not log it
    try:
        async with Client(address) as client, AsyncExitStack() as stack:
            for one in (nearly_too_slow, endless):
                group = f"bench-{one.name}-{label}"
                settings = from_the_first(TOPIC)
                await stack.enter_async_context(
                    client.listen(TOPIC, never, one, settings=settings, group=group)
                )
            await _until_run(client, f"bench-{nearly_too_slow.name}-{label}", nearly_too_slow.name)
            yield
    finally:
        log.setLevel(was)


async def _until_run(client: Client, group: str, name: str) -> None:
    until = time.monotonic() + SERVERS_WITHIN_S
    while time.monotonic() < until:
        found = await client.admin.filters.statistics(group, name)
        if any(figures.batches for each in found.values() for figures in each):
            return
        await asyncio.sleep(LOOK_S)
    raise Unavailable(f"the filter {name} has not run after {SERVERS_WITHIN_S:g} s")
