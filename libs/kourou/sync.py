"""The blocking face of the client: the same names as `kourou.Client`, without `await`.

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

from kourou.client.blocking_consumers import Blocking, Listener, Subscribed
from kourou.client.blocking_requests import BlockingRequests
from kourou.client.blocking_transactions import BlockingTransactions
from kourou.client.client_core import ClientCore
from kourou.client.connections import Dial
from kourou.client.consumption import Topics, chosen_handler, consumption, group_defaults
from kourou.client.filters import Wanted
from kourou.client.handlers import is_coroutine_handler
from kourou.client.io_thread import ClientClosed
from kourou.client.offsets import OffsetStore
from kourou.client.producer import ProducerCore
from kourou.client.pull_consumer import PullConsumer
from kourou.client.requesting import replying
from kourou.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.client.transaction_checks import Checker
from kourou.client.transaction_producer import BlockingExecuting, Executor
from kourou.errors import BadRequest
from kourou.model.subscription import MATCH_ALL


class Client(BlockingRequests, BlockingTransactions):
    """One application's door to a cluster. Open it with `with`, or with `open` and `close`."""

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

    # -- life -------------------------------------------------------------------------------------

    def open(self) -> Self:
        """Open the client; no server is spoken to before it is needed."""
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
        """Let handlers finish, commit, wait for the outcomes of sends, end every conversation."""
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
        """The name brokers know this client by."""
        return self._client.session.client_id

    @property
    def admin(self) -> Any:
        """The families of `kourou.client.admin.Admin`, with methods that block."""
        from kourou.client.admin import Admin  # a third of what a client has to import

        return Blocking(Admin(self._client.session), self._client.io)

    def _producer_core(self) -> ProducerCore:
        if self._core is None:
            raise ClientClosed
        return self._core

    # -- producing and consuming ------------------------------------------------------------------

    def producer(self, settings: ProducerSettings) -> Producer:
        """One more producer with settings of its own, for instance of another group."""
        return Producer(self._client, settings)

    def transaction_producer(
        self, settings: ProducerSettings, *, execute: Executor, check: Checker
    ) -> TransactionProducer:
        """A producer as RocketMQ's TransactionMQProducer (kourou.client.transaction_producer).

        `execute(transaction, argument)` does what belongs to a message and says what became of it;
        `check(message)` answers brokers that ask.
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
        """Messages as an iteration for one thread: `with` it, then `for`."""
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
        """A `kourou.client.pull_consumer.PullConsumer` with methods that block."""
        if settings is None:
            settings = PullConsumerSettings(consumer_group=group or self._consuming.consumer_group)
        io = self._client.io
        work = self._client.pull_consumer(settings, body_type=body_type)
        consumer: PullConsumer = io.submit(work).result()
        return Blocking(consumer, io)


class Producer(BlockingRequests, BlockingTransactions):
    """A producer beside a client's own; the client must be open."""

    def __init__(self, client: ClientCore, settings: ProducerSettings) -> None:
        super().__init__()
        self._client = client
        self._settings = settings

    def open(self) -> Self:
        """Begin to produce."""
        self._begin(self._client.producer(self._settings), self._client)
        self._begin_checks()
        return self

    def close(self) -> None:
        """Wait for the outcomes of sends, leave the group."""
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
