"""Clients over a cluster in memory, and what tests of consumers share."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from kourou import Client, ClientSettings, ConsumerSettings, ProducerSettings
from kourou.clock import SystemClock
from kourou.model.subscription import ConsumeFromWhere
from kourou_rigs.wire_cluster import WireCluster
from kourou_rigs.wire_core import CoreBroker

NAMESRV = "127.0.0.1:9876"


@pytest.fixture
def cluster() -> WireCluster:
    """A cluster in memory."""
    return WireCluster()


@pytest.fixture
def broker(cluster) -> CoreBroker:
    """A broker with a topic T of four queues."""
    cluster.topics["T"] = (4, 4)
    return cluster.broker()


@pytest.fixture
def one_queue(broker, cluster) -> CoreBroker:
    """A broker whose topic T and the retry topic of group g have one queue each."""
    cluster.topics |= {"T": (1, 1), "%RETRY%g": (1, 1)}
    return broker


@pytest.fixture
def producing(cluster):
    """Makes clients that produce in group p."""

    def make(*, log_messages=False, **settings) -> Client:
        producer = ProducerSettings(producer_group="p", **settings)
        client = ClientSettings(log_messages=log_messages)
        return Client(NAMESRV, settings=client, producer=producer, dial=cluster.dial)

    return make


@pytest.fixture
def consuming(cluster):
    """Makes clients that consume in group g, from the beginning unless told otherwise."""

    def make(*, interval_ms=60_000, offsets_dir="", log_messages=False, **settings) -> Client:
        settings.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        return Client(
            NAMESRV,
            settings=ClientSettings(
                persist_consumer_offset_interval_ms=interval_ms,
                local_offsets_dir=offsets_dir,
                log_messages=log_messages,
            ),
            consumer=ConsumerSettings(consumer_group="g", **settings),
            dial=cluster.dial,
        )

    return make


class Inbox:
    """An async handler that keeps what it gets and waits for a number of messages."""

    def __init__(self, wanted: int) -> None:
        self.bodies: list = []
        self.messages: list = []
        self.wanted = wanted
        self.full = asyncio.Event()

    async def handle(self, item) -> None:
        for message in item if isinstance(item, list) else [item]:
            self.messages.append(message)
            self.bodies.append(message.body)
        if len(self.bodies) >= self.wanted:
            self.full.set()


class Watch:
    """An async handler that notes what runs, and that nothing runs beside it in its queue."""

    def __init__(self, say=None) -> None:
        self.say = say
        self.seen: list[bytes] = []
        self.running: dict = {}

    async def handle(self, message):
        assert message.queue not in self.running, "one at a time"
        self.running[message.queue] = message.body
        try:
            said = self.say(message) if self.say else None
            return await said if asyncio.iscoroutine(said) else said
        finally:
            self.seen.append(message.body)
            del self.running[message.queue]


class Store(dict):
    """An offset store that is empty, hence false, at first."""

    async def load(self, queue):
        return self.get(queue)

    async def save(self, offsets):
        self.update(offsets)


class Gate:
    """Counts down to an event, across threads."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = threading.Lock()
        self._passed = threading.Event()

    def count(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._passed.set()

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, self._passed.wait, 60), f"{self._left} missing"


async def until(broker, condition) -> None:
    """Wait for a condition, which is checked after every request to the broker."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def notify():
        loop.call_soon_threadsafe(changed.set)

    broker.watchers.add(notify)
    while not condition():
        changed.clear()
        try:
            # A change may also come without a request, so it is looked at now and then.
            await asyncio.wait_for(changed.wait(), 0.02)
        except TimeoutError:
            continue
    broker.watchers.remove(notify)


async def fill(make, count: int, **fields):
    """Send bodies 0, 1, 2 … to T, with a client of its own."""
    async with make() as mq:
        return await mq.send_many("T", numbers(count), **fields)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


class OverOnceStored(SystemClock):
    """The time of a request at which it is over as soon as a broker has stored the message in T.

    A short timeout would do as well on an idle machine; on a busy one the send itself misses it.
    """

    def __init__(self, broker) -> None:
        self._broker, self._before = broker, len(broker.stored("T"))

    def monotonic_ms(self) -> int:
        over = len(self._broker.stored("T")) > self._before
        return super().monotonic_ms() + (3_600_000 if over else 0)


def no_reply_in_time(mq, broker) -> None:
    """From now on requests of this client leave in time, and no reply comes in time."""
    mq._core.clock = OverOnceStored(broker)


def core(mq):
    """The part of a client that consumes: itself, or its twin on a thread of its own."""
    return mq._client._twin or mq._client


async def refresh(mq, topic="T") -> None:
    """Ask the name server for a route again."""
    client = core(mq)
    await client.io.run(client.session.routes.refresh(topic))


def slowly(listener, gate=None):
    """Messages of this listener take their time to go back, or wait for a gate."""
    way = listener._started._send_back
    quickly = way.send_back

    async def send_back(message, **params):
        for _ in range(20):
            await asyncio.sleep(0)
        if gate is not None:
            await gate.wait()
        await quickly(message, **params)

    way.send_back = send_back


@pytest.fixture
def tools():
    """What test modules cannot import from here."""
    return SimpleNamespace(
        NAMESRV=NAMESRV,
        Inbox=Inbox,
        Watch=Watch,
        Gate=Gate,
        Store=Store,
        until=until,
        no_reply_in_time=no_reply_in_time,
        fill=fill,
        numbers=numbers,
        slowly=slowly,
        core=core,
        refresh=refresh,
    )
