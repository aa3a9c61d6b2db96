"""The blocking API of consumers and administration.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from kourou.client.client_core import ClientCore
from kourou.client.consumer.consumption import Consumption
from kourou.client.consumer.handlers import Report, Runner, ThreadRunner
from kourou.client.consumer.push_consumer import PushConsumer
from kourou.client.consumer.queue_consumption import ConsumeCounts
from kourou.client.consumer.streams import BlockingStreamRunner
from kourou.client.ordered.consumer import OrderedConsumer
from kourou.client.ordered.turns import TurnLog, plain_turns
from kourou.client.session.io_thread import ClientClosed, Io
from kourou.errors import FilterFailed
from kourou.model.topic import MessageQueue


class Blocking:
    """Wraps an object whose coroutines run on the I/O thread; its methods block until they end."""

    def __init__(self, inner: Any, io: Io) -> None:
        self._inner = inner
        self._io = io

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        work = getattr(found, "__wrapped__", None)
        if work is None:
            return found if not hasattr(found, "_io") else Blocking(found, self._io)

        def blocking(*args: Any, **kwargs: Any) -> Any:
            return self._io.submit(work(self._inner, *args, **kwargs)).result()

        return blocking


class _Consuming:
    """A push consumer on the I/O thread; may be started and closed from any thread."""

    def __init__(self, client: ClientCore, wanted: Consumption) -> None:
        self._client = client
        self._wanted = wanted
        self._consumer: PushConsumer | None = None

    def _make_runner(self, report: Report) -> Runner:
        raise AssertionError(f"{type(self).__name__} makes no runner")

    def start(self) -> Self:
        """Join the group and start consuming."""
        work = self._client.push_consumer(self._wanted, self._make_runner)
        self._consumer = self._client.io.submit(work).result()
        return self

    def close(self) -> None:
        """Wait for running handlers, commit offsets and leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None and self._client.is_open:
            self._client.io.submit(self._client.close_consumer(consumer)).result()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def commit(self) -> None:
        """Commit the consumed offsets now, without waiting for the next interval."""
        self._client.io.submit(self._started.commit()).result()


class Listener(_Consuming):
    """Calls a handler with every message, in a thread pool."""

    def __init__(
        self, client: ClientCore, wanted: Consumption, handler: Callable[[Any], Any]
    ) -> None:
        super().__init__(client, wanted)
        self._handler = handler

    def _make_runner(self, report: Report) -> Runner:
        settings, handler = self._wanted.settings, self._handler
        log = self._client.consume_log
        message_trace = self._client.message_trace(settings)
        if message_trace is not None:
            handler = message_trace.handler(handler)
        if self._client.tracing is not None:
            handler = self._client.tracing.plain_handler(settings.consumer_group, handler)
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


class Subscribed(_Consuming):
    """An iterator over messages, for one thread."""

    def __init__(self, client: ClientCore, wanted: Consumption, *, auto_ack: bool) -> None:
        super().__init__(client, wanted)
        self._auto_ack = auto_ack
        self._stream: BlockingStreamRunner | None = None

    def _make_runner(self, report: Report) -> Runner:
        if self._client.tracing is not None:
            group = self._wanted.settings.consumer_group
            report = self._client.tracing.stream_report(group, report)
        message_trace = self._client.message_trace(self._wanted.settings)
        if message_trace is not None:
            report = message_trace.report(report)
        self._stream = BlockingStreamRunner(
            report, self._client.consume_log, auto_ack=self._auto_ack
        )
        return self._stream

    def __iter__(self) -> BlockingStreamRunner:
        if self._stream is None:
            raise ClientClosed("subscription")
        return self._stream
