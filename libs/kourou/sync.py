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

from collections.abc import Callable, Mapping
from typing import Any, Self

from kourou.client.client_core import ClientCore
from kourou.client.consumer.blocking import Blocking, Listener, Subscribed
from kourou.client.consumer.consumption import Topics, chosen_handler, consumption, group_defaults
from kourou.client.consumer.handlers import is_coroutine_handler
from kourou.client.consumer.offsets import OffsetStore
from kourou.client.consumer.pull_consumer import PullConsumer
from kourou.client.filters.expressions import Wanted
from kourou.client.producer.producer_core import ProducerCore
from kourou.client.requests.blocking import BlockingRequests
from kourou.client.requests.requester import replying
from kourou.client.session.connections import Dial
from kourou.client.session.io_thread import ClientClosed
from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.client.transactions.blocking import BlockingTransactions
from kourou.client.transactions.checks import Checker
from kourou.client.transactions.producer import BlockingExecuting, Executor
from kourou.errors import BadRequest
from kourou.model.subscription import MATCH_ALL


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
    ) -> Subscribed:
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
        return Subscribed(self._client, wanted, auto_ack=auto_ack)

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
    ) -> Listener:
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
        return Listener(self._client, wanted, handler)

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


class TransactionProducer(BlockingExecuting, Producer):
    """A producer of transactions with an executor and a checker; the client must be open."""

    def __init__(
        self, client: ClientCore, settings: ProducerSettings, execute: Executor, check: Checker
    ) -> None:
        super().__init__(client, settings)
        self._executes(execute, check)
