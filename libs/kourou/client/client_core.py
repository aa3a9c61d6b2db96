"""One client, shared by both APIs: it is opened and closed, and creates producers and consumers.

Opening connects to no server: connections to name servers and brokers are opened when they are
first needed. Closing ends consumers (handlers finish, offsets are committed), then producers
(outcomes arrive), then connections, then the I/O thread if no other client uses it.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from itertools import count
from typing import Protocol

from kourou.client.codecs import body_decoder
from kourou.client.consumer.consumption import Consumption
from kourou.client.consumer.handlers import HandlerReport, HandlerRunner
from kourou.client.consumer.pull_consumer import PullConsumer
from kourou.client.consumer.push_consumer import PushConsumer
from kourou.client.filters.expressions import ask_brokers, subscription_of
from kourou.client.filters.python_filter import Filter
from kourou.client.introspection.running_info import ConsumeLog
from kourou.client.ordered.consumer import OrderedConsumer
from kourou.client.producer.producer_core import ProducerCore
from kourou.client.session import io_thread
from kourou.client.session.client_keys import client_curve
from kourou.client.session.client_session import Session
from kourou.client.session.connections import Dial, zmq_dial
from kourou.client.session.discovery import NameServers, discover, host_of, zmq_endpoint
from kourou.client.session.heartbeats import Standby
from kourou.client.session.io_thread import ClientClosed, Io, IoLoop
from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.client.tracing.message_trace import TRACE_GROUP, ConsumeTrace, SendTrace, TraceWriter
from kourou.client.tracing.spans import ClientTracing, client_tracing
from kourou.clock import Clock, SystemClock
from kourou.model.names import check_client_id, check_group
from kourou.model.refused_settings import promises_nothing

DEFAULT_INSTANCE = "DEFAULT"
_numbers = count(1)
_log = logging.getLogger("kourou.client")


class Closing(Protocol):
    """An object that a client has to close."""

    async def close(self) -> None:
        """Close it; runs on the I/O thread."""
        ...


class ClientCore:
    """The parts of one client."""

    def __init__(
        self,
        namesrv_addr: str | None,
        settings: ClientSettings,
        *,
        options: Mapping[str, str] | None = None,
        dial: Dial | None = None,
    ) -> None:
        self.settings = settings
        options = {**process_options(), **(options or {})}
        for name, value in options.items():
            promises_nothing(name, value)  # raises if an option is not supported
        self._found = discover(
            namesrv_addr or settings.namesrv_addr,
            options=options,
            environment=os.environ,
            list_url=settings.namesrv_list_url,
        )
        self.clock: Clock = io_thread.clock_at(_key(self._found))
        curve = client_curve(settings, os.environ)
        self._dial = dial or zmq_dial(
            self.clock,
            curve,
            busy_poll_us=settings.busy_poll_us,
            on_behalf_of=settings.on_behalf_of,
        )
        self.dials_in_clear = not (dial or curve or settings.on_behalf_of) and isinstance(
            self.clock, SystemClock
        )
        """Whether threads may open connections; requires ZeroMQ, clear text and real time."""

        self._chance = random.Random()
        self._io: Io | None = None
        self._thread: Io | None = None
        self._twin: ClientCore | None = None
        self._standby: Standby | None = None
        self._making_twin = asyncio.Lock()
        self._client_id = ""
        self.tracing: ClientTracing | None = None
        self._session: Session | None = None
        self._client_ip = settings.client_ip
        self._producers: list[ProducerCore] = []
        self._consumers: list[Closing] = []
        self._trace_writers: dict[str, TraceWriter] = {}
        self._making_writers = threading.Lock()

    @property
    def session(self) -> Session:
        """The open session. Raises ClientClosed before `open` and after `close`."""
        if self._session is None:
            raise ClientClosed
        self._session.io.check()
        return self._session

    @property
    def consume_log(self) -> ConsumeLog:
        """A new consume log, for one consumer."""
        return ConsumeLog(self.clock, self.settings.message_log_level)

    @property
    def is_open(self) -> bool:
        """Whether the client is open, and this is the process that opened it."""
        return self._session is not None and not self._session.io.orphaned

    @property
    def io(self) -> Io:
        """The loop or thread that runs the connections of the open client."""
        return self.session.io

    # -- lifecycle --------------------------------------------------------------------------------

    def acquire(self, loop: asyncio.AbstractEventLoop | None = None) -> Io:
        """Acquire `loop`, or the I/O thread; the first step of opening; callable in any thread."""
        if self._io is None or self._io.orphaned:
            self.tracing = client_tracing(self.settings)
            self._io = io_thread.acquire(_key(self._found), loop)
        return self._io

    async def open(self) -> None:
        """Create the session; runs on the I/O thread or loop."""
        io = self._io
        assert io is not None, "acquire comes first"
        if not self._client_ip:
            self._client_ip = await asyncio.to_thread(local_address, self._found)
        self._client_id = client_id(
            self._client_ip,
            self.settings.instance_name,
            pid=os.getpid(),
            number=next(_numbers),
            unit_name=self.settings.unit_name,
        )
        if self.tracing is not None:
            self.tracing.client_id = self._client_id
        await self._begin(io)

    async def _begin(self, io: Io) -> None:
        session = Session(
            io,
            self.settings,
            self._found,
            self._client_id,
            dial=self._dial,
            clock=self.clock,
            chance=self._chance,
            tracing=self.tracing,
        )
        await session.open()
        self._session = session

    async def consuming(self, *, ordered: bool = False) -> ClientCore:
        """Return the client to consume with: this one, or its twin for orderly consumption.

        A handler on the application's loop may block the loop for longer than the broker waits for
        heartbeats. Orderly consumers therefore use a second client with the same ID on the I/O
        thread. For other consumers that thread sends the heartbeats as a standby. Both are created
        when they are first needed.
        """
        io = self.io
        if not isinstance(io, IoLoop):
            return self
        if ordered:
            return await io.run(self._made_twin())
        if self._standby is None:
            session = self.session
            self._standby = Standby(
                session.heartbeats, io.loop, self._acquired_thread(), self._dial
            )
            self._standby.start()
        return self

    def _acquired_thread(self) -> Io:
        if self._thread is None:
            self._thread = io_thread.acquire(_key(self._found))
        return self._thread

    async def _made_twin(self) -> ClientCore:
        async with self._making_twin:
            if self._twin is None:
                twin = copy(self)
                twin._standby = None
                twin._consumers, twin._producers, twin._trace_writers = [], [], {}
                io = twin._io = self._acquired_thread()
                await io.run(twin._begin(io))
                self._twin = twin
            return self._twin

    async def close(self) -> None:
        """Close everything in order; runs on the I/O thread or loop."""
        session = self._session
        if session is None:
            return
        async with self._making_twin:
            twin, self._twin = self._twin, None
        if twin is not None:
            await twin.io.run(twin.close())
        standby, self._standby = self._standby, None
        if standby is not None:
            await standby.close()
        await asyncio.gather(*(self._close_one(one) for one in list(self._consumers)))
        await asyncio.gather(*(producer.close() for producer in self._producers))
        await asyncio.gather(*(writer.close() for writer in self._trace_writers.values()))
        self._session = None
        await session.close()

    async def _close_one(self, consumer: Closing) -> None:
        try:
            await consumer.close()
        except Exception:  # noqa: BLE001 - one consumer must not keep the others open
            _log.exception("consumer-close-failed: closing a consumer failed; closing continues")
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def release(self) -> None:
        """Release thread or loop; the last step of closing. Blocks until the thread has ended."""
        for io in (self._io, self._thread):
            if io is not None:
                io_thread.release(io)
        self._io = self._thread = None
        tracing, self.tracing = self.tracing, None
        if tracing is not None:
            tracing.close()

    # -- creating ---------------------------------------------------------------------------------

    def producer(self, settings: ProducerSettings) -> ProducerCore:
        """Return a new producer of this client."""
        check_group(settings.producer_group)
        core = ProducerCore(settings, self.session, self._client_ip)
        if settings.message_trace:
            writer = self._trace_writer(settings.message_trace_topic)
            trace = SendTrace(writer, settings.producer_group)
            core.sender.message_trace = core.ends.message_trace = trace
        self._producers.append(core)
        return core

    def _trace_writer(self, topic: str) -> TraceWriter:
        """Return the client's writer of message traces to this topic; callable from any thread."""
        with self._making_writers:
            writer = self._trace_writers.get(topic)
            if writer is None:
                settings = ProducerSettings(producer_group=TRACE_GROUP)
                core = ProducerCore(settings, self.session, self._client_ip)
                writer = self._trace_writers[topic] = TraceWriter(core, topic)
            return writer

    def message_trace(self, settings: ConsumerSettings) -> ConsumeTrace | None:
        """Return the recorder of a consumer's handler calls, or None if message trace is off."""
        if not settings.message_trace:
            return None
        writer = self._trace_writer(settings.message_trace_topic)
        return ConsumeTrace(writer, settings.consumer_group)

    async def close_producer(self, producer: ProducerCore) -> None:
        """Close one producer; runs on the I/O thread."""
        if producer in self._producers:
            self._producers.remove(producer)
            await producer.close()

    async def push_consumer(
        self,
        wanted: Consumption,
        make_runner: Callable[[HandlerReport], HandlerRunner],
        *,
        free: type[PushConsumer] = PushConsumer,
        ordered: type[OrderedConsumer] = OrderedConsumer,
    ) -> PushConsumer:
        """Return a started push consumer, of class `free` or `ordered`; runs on the I/O thread."""
        check_group(wanted.settings.consumer_group)
        version = self.clock.now_ms()
        subscriptions = {
            topic: subscription_of(topic, expression, version=version)
            for topic, expression in wanted.subscriptions.items()
        }
        await ask_brokers(self.session, wanted.settings.consumer_group, subscriptions.values())
        make: Callable[..., PushConsumer] = free
        if wanted.ordered:
            make = partial(ordered, auto_commit=wanted.auto_commit)
        consumer = make(
            self.session,
            wanted.settings,
            subscriptions,
            make_runner,
            decode=None if wanted.body_type is None else body_decoder(wanted.body_type),
            batched=wanted.batched,
            offsets=wanted.offsets,
            filters=[one for one in wanted.subscriptions.values() if isinstance(one, Filter)],
        )
        self._consumers.append(consumer)
        try:
            await consumer.start()
        except BaseException:
            await self.close_consumer(consumer)
            raise
        return consumer

    async def pull_consumer(
        self, settings: PullConsumerSettings, *, body_type: object = None
    ) -> PullConsumer:
        """Return an open pull consumer; runs on the I/O thread."""
        check_group(settings.consumer_group)
        consumer = PullConsumer(self.session, settings, body_type=body_type)
        self._consumers.append(consumer)
        try:
            await consumer.open()
        except BaseException:
            await self.close_consumer(consumer)
            raise
        return consumer

    async def close_consumer(self, consumer: Closing) -> None:
        """Close one consumer; runs on the I/O thread."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        await consumer.close()


def process_options() -> dict[str, str]:
    """Return the interpreter's options `-X name=value`, as Java's system properties."""
    # `_xoptions` is the documented attribute, despite its name.
    return {name: value for name, value in sys._xoptions.items() if isinstance(value, str)}


def local_address(found: NameServers) -> str:
    """Return this machine's address on the route to the name servers, or else 127.0.0.1."""
    targets = [host_of(zmq_endpoint(address)) for address in found.addresses]
    for host, port in targets or [("192.0.2.1", 9)]:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            for family, kind, protocol, _, where in infos:
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(where)  # sends nothing; the system selects the interface
                    return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def _key(found: NameServers) -> str:
    return ";".join(sorted(found.addresses)) or found.list_url


def client_id(
    client_ip: str, instance_name: str, *, pid: int, number: int, unit_name: str = ""
) -> str:
    """Return the ID of a client: `ip@instanceName[@unitName]`.

    The client ID identifies the consumers of a group, and queues are allocated in its order.
    RocketMQ's default instance name `DEFAULT` is therefore replaced by `pid#number`, where `number`
    distinguishes the clients of one process. Otherwise two clients in one process, or two processes
    on one machine, would be the same consumer.
    """
    instance = f"{pid}#{number}" if instance_name == DEFAULT_INSTANCE else instance_name
    parts = [client_ip, instance]
    if unit_name:
        parts.append(unit_name)
    return check_client_id("@".join(parts))
