"""The blocking API of the client: the same names as in `kourou.Client`, without `await`.

    with Client("127.0.0.1:9876", group="checkout") as mq:
        mq.send("orders", b"...", tag="paid", keys="A-1")
        with mq.subscribe("orders", "paid") as orders:
            for message in orders:
                handle(message.body)

Every method may be called from any thread, and threads that send at the same time share frames.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from kourou.client.client_core import ClientCore
from kourou.client.consumer.consumers import BlockingStreamRunner
from kourou.client.consumer.consumption import (
    Consumption,
    Topics,
    chosen_handler,
    consumption,
    group_defaults,
)
from kourou.client.consumer.handlers import (
    HandlerReport,
    HandlerRunner,
    ThreadRunner,
    is_coroutine_handler,
)
from kourou.client.consumer.offsets import OffsetStore
from kourou.client.consumer.pull_consumer import PullConsumer
from kourou.client.consumer.push_consumer import PushConsumer
from kourou.client.consumer.queue_consumption import ConsumeCounts
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Wanted
from kourou.client.ordered.consumer import OrderedConsumer
from kourou.client.ordered.turns import TurnLog, plain_turns
from kourou.client.producer.blocking_sends import BlockingSends, Waiter
from kourou.client.producer.drafts import joined_keys
from kourou.client.producer.producer_core import Choice, ProducerCore
from kourou.client.requests.requester import replying
from kourou.client.session.connections import Dial
from kourou.client.session.io_thread import ClientClosed, Io
from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.client.transactions.checks import Checker
from kourou.client.transactions.producer import (
    BlockingTransactions,
    BlockingTransactionSending,
    Executor,
)
from kourou.errors import BadRequest, FilterFailed, KourouError
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import MessageQueue


class BlockingRequests(BlockingSends):
    """Sending of requests and replies.

    `Client` and `Producer` of kourou.sync have these methods.
    """

    def request(
        self,
        topic: str,
        body: Any,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        flag: int = 0,
        body_type: Any = None,
        timeout_ms: int | None = None,
    ) -> ReceivedMessage:
        """Send a request and wait for its reply; see `kourou.Client.request`."""
        core, port, targets = self._ready(topic)
        requests, group = core.requests, core.settings.producer_group
        if timeout_ms is None:
            timeout_ms = core.settings.send_timeout_ms
        choice = Choice(order_key, queue)
        terms = core.terms(timeout_ms=timeout_ms, wait=True, pinned=choice.pinned)
        until_ms = core.clock.monotonic_ms() + timeout_ms
        if not requests.is_prepared(group, topic):
            core.io.submit(requests.prepare(group, topic)).result()
        waiting = requests.open(timeout_ms, body_type)
        try:
            sent = Waiter()
            own = waiting.properties
            port.add_all(
                [
                    core.pending_send(
                        targets, port, sent, body, tag, keys, properties, flag, terms, choice, own
                    )
                ]
            )
            try:
                sent.wait()
            except KourouError:
                if not waiting.future.done():  # a received reply outweighs a lost send result
                    raise
            left_ms = until_ms - core.clock.monotonic_ms()
            try:
                return waiting.future.result(max(left_ms, 0) / 1000)
            except TimeoutError:
                raise waiting.late() from None
        finally:
            requests.close(waiting)

    def reply(
        self,
        message: ReceivedMessage,
        body: Any,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> None:
        """Reply to a request that was received; see `kourou.Client.reply`."""
        core = self._core
        if core is None:
            raise ClientClosed
        work = core.replier.reply(
            message, body, tag=tag, keys=joined_keys(keys), properties=properties, flag=flag
        )
        core.io.submit(work).result()


class Client(BlockingRequests, BlockingTransactions):
    """An application's connection to a cluster. Use `with`, or `open` and `close`.

    The arguments are those of `kourou.Client`.
    """

    def __init__(
        self,
        namesrv_addr: str | None = None,
        *,
        group: str | None = None,
        settings: ClientSettings | None = None,
        producer: ProducerSettings | None = None,
        consumer: ConsumerSettings | None = None,
        options: Mapping[str, str] | None = None,
        dial: Dial | None = None,
    ) -> None:
        super().__init__()
        self._client = ClientCore(
            namesrv_addr, settings or ClientSettings(), options=options, dial=dial
        )
        self._producing, self._consuming = group_defaults(group, producer, consumer)

    # -- lifecycle --------------------------------------------------------------------------------

    def open(self) -> Self:
        """Open the client. It connects to servers only when they are first needed."""
        io = self._client.acquire()
        try:
            io.submit(self._client.open()).result()
        except BaseException:
            self._client.release()
            raise
        self._begin(self._client.producer(self._producing), self._client)
        self._begin_checks()
        return self

    def close(self) -> None:
        """Wait for handlers and for results of sends, commit offsets, close all connections."""
        self._end()
        try:
            if self._client.is_open:
                self._client.io.submit(self._client.close()).result()
            self._shut_pool()
        finally:
            self._client.release()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def client_id(self) -> str:
        """The client ID that identifies this client to brokers."""
        return self._client.session.client_id

    @property
    def admin(self) -> Any:
        """The administration APIs of `kourou.client.admin.api.Admin`, with blocking methods."""
        from kourou.client.admin.api import Admin  # a third of a client's imports

        return Blocking(Admin(self._client.session), self._client.io)

    def _producer_core(self) -> ProducerCore:
        if self._core is None:
            raise ClientClosed
        return self._core

    # -- producing and consuming ------------------------------------------------------------------

    def producer(self, settings: ProducerSettings) -> Producer:
        """Return another producer with its own settings, for example for another group."""
        return Producer(self._client, settings)

    def transaction_producer(
        self, settings: ProducerSettings, *, execute: Executor, check: Checker
    ) -> TransactionProducer:
        """Return a producer like RocketMQ's TransactionMQProducer.

        See kourou.client.transactions.producer. `execute(transaction, argument)` runs the local
        transaction of a message and returns its state. `check(message)` answers the brokers'
        check-backs.
        """
        return TransactionProducer(self._client, settings, execute, check)

    def subscribe(
        self,
        topics: Topics | None = None,
        expression: Wanted = MATCH_ALL,
        *,
        body_type: Any = None,
        group: str | None = None,
        settings: ConsumerSettings | None = None,
        offsets: OffsetStore | None = None,
        auto_ack: bool = True,
    ) -> BlockingSubscribed:
        """Return messages as an iterator for one thread: use `with`, then `for`.

        The arguments are those of `kourou.Client.subscribe`.
        """
        wanted = consumption(
            settings or self._consuming,
            topics,
            expression,
            group=group,
            body_type=body_type,
            offsets=offsets,
        )
        return BlockingSubscribed(self._client, wanted, auto_ack=auto_ack)

    def listen(
        self,
        topics: Topics | None = None,
        handler: Callable[[Any], Any] | None = None,
        expression: Wanted = MATCH_ALL,
        *,
        body_type: Any = None,
        group: str | None = None,
        settings: ConsumerSettings | None = None,
        offsets: OffsetStore | None = None,
        batch: bool | int = False,
        replies: bool = False,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> BlockingListener:
        """Call `handler` in threads with every message; see `kourou.Client.listen`."""
        handler = chosen_handler(settings or self._consuming, handler)
        if is_coroutine_handler(handler):
            raise BadRequest(
                "the blocking client has no loop to run a coroutine on",
                hint="use kourou.Client, or a plain function",
            )
        wanted = consumption(
            settings or self._consuming,
            topics,
            expression,
            group=group,
            body_type=body_type,
            offsets=offsets,
            batch=batch,
            ordered=ordered,
            auto_commit=auto_commit,
        )
        if replies:
            handler = replying(handler, self._producer_core)
        return BlockingListener(self._client, wanted, handler)

    def pull_consumer(
        self,
        group: str | None = None,
        *,
        settings: PullConsumerSettings | None = None,
        body_type: Any = None,
    ) -> Any:
        """Return an open `PullConsumer` with blocking methods."""
        if settings is None:
            settings = PullConsumerSettings(consumer_group=group or self._consuming.consumer_group)
        io = self._client.io
        work = self._client.pull_consumer(settings, body_type=body_type)
        consumer: PullConsumer = io.submit(work).result()
        return Blocking(consumer, io)


class Producer(BlockingRequests, BlockingTransactions):
    """An additional producer of a client. Use `with`; the client must be open."""

    def __init__(self, client: ClientCore, settings: ProducerSettings) -> None:
        super().__init__()
        self._client = client
        self._settings = settings

    def open(self) -> Self:
        """Start the producer."""
        self._begin(self._client.producer(self._settings), self._client)
        self._begin_checks()
        return self

    def close(self) -> None:
        """Wait for the outcomes of sends and leave the group."""
        core = self._end()
        if core is not None and self._client.is_open:
            core.io.submit(self._client.close_producer(core)).result()
        self._shut_pool()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


class TransactionProducer(BlockingTransactionSending, Producer):
    """A producer of transactions with an executor and a checker; the client must be open."""

    def __init__(
        self, client: ClientCore, settings: ProducerSettings, execute: Executor, check: Checker
    ) -> None:
        super().__init__(client, settings)
        self._set_functions(execute, check)


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


class _BlockingConsumer:
    """A push consumer on the I/O thread; may be started and closed from any thread."""

    def __init__(self, client: ClientCore, wanted: Consumption) -> None:
        self._client = client
        self._wanted = wanted
        self._consumer: PushConsumer | None = None

    def _make_runner(self, report: HandlerReport) -> HandlerRunner:
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


class BlockingListener(_BlockingConsumer):
    """Calls a handler with every message, in a thread pool."""

    def __init__(
        self, client: ClientCore, wanted: Consumption, handler: Callable[[Any], Any]
    ) -> None:
        super().__init__(client, wanted)
        self._handler = handler

    def _make_runner(self, report: HandlerReport) -> HandlerRunner:
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


class BlockingSubscribed(_BlockingConsumer):
    """An iterator over messages, for one thread."""

    def __init__(self, client: ClientCore, wanted: Consumption, *, auto_ack: bool) -> None:
        super().__init__(client, wanted)
        self._auto_ack = auto_ack
        self._stream: BlockingStreamRunner | None = None

    def _make_runner(self, report: HandlerReport) -> HandlerRunner:
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
