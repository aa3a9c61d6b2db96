"""The asynchronous API of push consumers: a listener with a handler, a subscription to iterate.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

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
from kourou.client.consumer.streams import StreamRunner
from kourou.client.ordered.consumer import OrderedConsumer
from kourou.client.ordered.turns import TurnLog, coroutine_turns, plain_turns
from kourou.client.session.io_thread import ClientClosed
from kourou.errors import FilterFailed
from kourou.model.topic import MessageQueue


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
    """An iterator over messages (kourou.client.consumer.streams)."""

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
