"""The asynchronous API of push consumers: a listener with a handler, a subscription to iterate.

State: soft.

Iteration over messages: `async for` on the application's loop, or plain `for` in a thread.

    async with client.subscribe("orders", "paid || refunded", body_type=Order) as orders:
        async for message in orders:
            await handle(message.body)              # the next iteration acknowledges this one

    async for message in orders:
        async with message:                         # acknowledges, or requests a retry if it raises
            await handle(message.body)

With `auto_ack=False` only `message.ack()` and `with message` acknowledge, for applications that
process several messages concurrently. A message that is neither acknowledged nor rejected holds
back the group's offset and, at the limits of the window, its queue.
"""

from __future__ import annotations

import asyncio
import queue as queues
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self
from weakref import WeakKeyDictionary

from kourou.client.client_core import ClientCore
from kourou.client.consumer.consumption import Consumption
from kourou.client.consumer.handlers import (
    CoroutineRunner,
    HandlerReport,
    HandlerRunner,
    ThreadRunner,
    is_coroutine_handler,
)
from kourou.client.consumer.push_consumer import PushConsumer
from kourou.client.consumer.queue_consumption import ConsumeCounts
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.introspection.running_info import NOT_MEASURED, ConsumeLog
from kourou.client.ordered.consumer import OrderedConsumer
from kourou.client.ordered.turns import TurnLog, coroutine_turns, plain_turns
from kourou.client.session.io_thread import ClientClosed, ThreadQueue
from kourou.errors import BadRequest, FilterFailed
from kourou.model.topic import MessageQueue


class _MessageIterator:
    """The shared part of both iterators: the last message, and the reports of outcomes."""

    def __init__(self, report: HandlerReport, log: ConsumeLog, *, auto_ack: bool) -> None:
        self._report = report
        self._log = log
        self._auto_ack = auto_ack
        self._last: ReceivedMessage | None = None
        self._started_ms: WeakKeyDictionary[ReceivedMessage, int] = WeakKeyDictionary()
        self._delivered: dict[int, ReceivedMessage] = {}  # by id; not with auto_ack

    def ack(self, message: ReceivedMessage) -> None:
        """Report a message as consumed."""
        self._delivered.pop(id(message), None)
        self._report.finished(message)
        if self._started_ms:
            self._log.consumed(message, self._started_ms.pop(message, NOT_MEASURED))

    def retry(self, message: ReceivedMessage, error: BaseException) -> None:
        """Report a message as failed."""
        self._delivered.pop(id(message), None)
        self._report.failed(message, error)
        if self._started_ms:
            self._started_ms.pop(message, None)

    def _ack_previous(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.ack()

    def _deliver(self, message: ReceivedMessage, *, measured: bool) -> ReceivedMessage:
        message.receipt = self
        started_ms = self._log.begin(measured)
        if started_ms != NOT_MEASURED:
            self._started_ms[message] = started_ms
        if self._auto_ack:
            self._last = message
        else:
            self._delivered[id(message)] = message
        return message

    def running(self) -> list[ReceivedMessage]:
        """Return the delivered messages that were neither acknowledged nor rejected."""
        last = self._last
        return list(self._delivered.values()) if last is None else [last]

    def times(self) -> list[int]:
        """Return the measured times from delivery to acknowledgement, in ms."""
        return self._log.collect()

    async def call(self, item: ReceivedMessage) -> BaseException | None:
        """Raise BadRequest: an iterator has no handler to call."""
        raise BadRequest(
            "this consumer is read by iteration, so it cannot consume a message directly"
        )


class StreamRunner(_MessageIterator):
    """A runner whose messages are read with `async for` on one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: HandlerReport,
        log: ConsumeLog,
        *,
        auto_ack: bool,
    ) -> None:
        super().__init__(report, log, auto_ack=auto_ack)
        self._inbox: ThreadQueue[ReceivedMessage] = ThreadQueue(loop, self._accept)
        self._loop = loop
        self._ready: deque[ReceivedMessage] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def submit(self, items: Sequence[ReceivedMessage]) -> None:
        """Accept messages."""
        self._inbox.put_many(list(items))

    def _accept(self, items: list[ReceivedMessage]) -> None:
        self._ready.extend(items)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        self._ack_previous()
        while True:
            while self._ready:
                message = self._ready.popleft()
                if self._report.wanted(message):
                    return self._deliver(message, measured=not self._ready)
            if self._closed:
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def close(self, timeout_ms: int) -> bool:
        """End the iteration; messages that were not read are redelivered to another consumer."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)
        return True

    def _end(self) -> None:
        self._closed = True
        self._ready.clear()
        self._wake()


class BlockingStreamRunner(_MessageIterator):
    """A runner whose messages are read with `for` in one thread."""

    def __init__(self, report: HandlerReport, log: ConsumeLog, *, auto_ack: bool) -> None:
        super().__init__(report, log, auto_ack=auto_ack)
        self._ready: queues.SimpleQueue[ReceivedMessage | None] = queues.SimpleQueue()
        self._closed = False

    def submit(self, items: Sequence[ReceivedMessage]) -> None:
        """Accept messages."""
        for item in items:
            self._ready.put(item)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        self._ack_previous()
        while True:
            message = self._ready.get()
            if message is None or self._closed:
                self._ready.put(None)  # for further calls of __next__
                raise StopIteration
            if self._report.wanted(message):
                return self._deliver(message, measured=self._ready.empty())

    async def close(self, timeout_ms: int) -> bool:
        """End the iteration."""
        self._closed = True
        self._ready.put(None)
        return True


class PushConsumerHandle:
    """A push consumer, opened and closed from the application's loop."""

    def __init__(self, client: ClientCore, wanted: Consumption) -> None:
        self._owner = self._client = client
        self._wanted = wanted
        self._consumer: PushConsumer | None = None

    def _make_runner(self, loop: asyncio.AbstractEventLoop, report: HandlerReport) -> HandlerRunner:
        raise AssertionError(f"{type(self).__name__} makes no runner")

    async def start(self) -> Self:
        """Join the group and start consuming."""
        loop = asyncio.get_running_loop()
        self._client = await self._owner.consuming(ordered=self._wanted.ordered)
        work = self._open(lambda report: self._make_runner(loop, report))
        self._consumer = await self._client.io.run(work)
        return self

    async def _open(self, make_runner: Callable[[HandlerReport], HandlerRunner]) -> PushConsumer:
        """Return the started consumer; runs on the I/O thread."""
        return await self._client.push_consumer(self._wanted, make_runner)

    async def close(self) -> None:
        """Wait for running handlers, commit offsets and leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None and self._client.is_open:
            await self._client.io.run(self._client.close_consumer(consumer))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _started(self) -> PushConsumer:
        if self._consumer is None:
            raise ClientClosed("consumer")
        return self._consumer

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that are assigned to this consumer now."""
        return self._started.assigned

    @property
    def locked(self) -> list[MessageQueue]:
        """The queues that this consumer has locked; empty unless it consumes in order."""
        consumer = self._started
        return consumer.locked if isinstance(consumer, OrderedConsumer) else []

    @property
    def counts(self) -> ConsumeCounts:
        """The numbers of messages pulled, consumed, failed, filtered, corrected and unreadable."""
        return self._started.counts

    @property
    def waiting(self) -> dict[MessageQueue, FilterFailed]:
        """The queues that are blocked because their filter cannot be evaluated, with the error."""
        return self._started.waiting

    async def commit(self) -> None:
        """Commit the consumed offsets now, without waiting for the next interval."""
        await self._client.io.run(self._started.commit())


class Listener(PushConsumerHandle):
    """Calls a handler with every message."""

    def __init__(
        self, client: ClientCore, wanted: Consumption, handler: Callable[[Any], Any]
    ) -> None:
        super().__init__(client, wanted)
        self._handler = handler

    def _make_runner(self, loop: asyncio.AbstractEventLoop, report: HandlerReport) -> HandlerRunner:
        settings, tracing = self._wanted.settings, self._client.tracing
        handler, log = self._handler, self._client.consume_log
        message_trace = self._client.message_trace(settings)
        if message_trace is not None:
            handler = message_trace.handler(handler)
        if is_coroutine_handler(handler):
            if tracing is not None:
                handler = tracing.coroutine_handler(settings.consumer_group, handler)
            if self._wanted.ordered:
                handler, log = coroutine_turns(handler, log), TurnLog(log)
            return CoroutineRunner(
                loop,
                handler,
                report,
                log,
                concurrency=settings.consume_threads_max,
            )
        if tracing is not None:
            handler = tracing.plain_handler(settings.consumer_group, handler)
        if self._wanted.ordered:
            handler, log = plain_turns(handler, log), TurnLog(log)
        return ThreadRunner(
            handler,
            report,
            log,
            threads_min=settings.consume_threads_min,
            threads_max=settings.consume_threads_max,
            name=f"kourou-{settings.consumer_group}",
        )


class Subscribed(PushConsumerHandle):
    """An iterator over messages (kourou.client.consumer.consumers)."""

    def __init__(self, client: ClientCore, wanted: Consumption, *, auto_ack: bool) -> None:
        super().__init__(client, wanted)
        self._auto_ack = auto_ack
        self._stream: StreamRunner | None = None

    def _make_runner(self, loop: asyncio.AbstractEventLoop, report: HandlerReport) -> HandlerRunner:
        if self._client.tracing is not None:
            group = self._wanted.settings.consumer_group
            report = self._client.tracing.stream_report(group, report)
        message_trace = self._client.message_trace(self._wanted.settings)
        if message_trace is not None:
            report = message_trace.report(report)
        self._stream = StreamRunner(loop, report, self._client.consume_log, auto_ack=self._auto_ack)
        return self._stream

    def __aiter__(self) -> StreamRunner:
        if self._stream is None:
            raise ClientClosed("subscription")
        return self._stream
