"""The client: what an application opens to send, consume and administer.

    async with Client("127.0.0.1:9876", group="checkout") as mq:
        result = await mq.send("orders", Order("A-1", 42), tag="paid", keys=["A-1"])
        async with mq.subscribe("orders", "paid || refunded", body_type=Order) as orders:
            async for message in orders:
                await handle(message.body)

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from kourou.client.client_core import ClientCore
from kourou.client.consumer.consumers import Listener, Subscribed
from kourou.client.consumer.consumption import Topics, chosen_handler, consumption, group_defaults
from kourou.client.consumer.handlers import HandlerReport, HandlerRunner
from kourou.client.consumer.lease_consumer import LeaseConsumer
from kourou.client.consumer.offsets import OffsetStore
from kourou.client.consumer.pull_consumer import PullConsumer
from kourou.client.filters.expressions import Wanted
from kourou.client.producer.producer_core import ProducerCore
from kourou.client.requests.requester import Requesting, replying
from kourou.client.session.connections import Dial
from kourou.client.session.io_thread import ClientClosed
from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.client.transactions.checks import Checker
from kourou.client.transactions.producer import Executor, TransactionSending
from kourou.client.transactions.transaction import AsyncTransactions
from kourou.model.subscription import MATCH_ALL

if TYPE_CHECKING:
    from kourou.client.admin.api import Admin


class Client(Requesting, AsyncTransactions):
    """An application's connection to a cluster. Use `async with`, or `open` and `close`.

    `group` is the default group of producers and consumers; settings that are passed explicitly
    contain their own group. `options` are process options by their RocketMQ names; they take
    precedence over those of `python -X`. `dial` replaces ZeroMQ as the transport, for tests and for
    embedding.
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
        self._admin: Admin | None = None

    # -- lifecycle --------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Open the client. It connects to servers only when they are first needed."""
        io = self._client.acquire(asyncio.get_running_loop())
        try:
            await io.run(self._client.open())
        except BaseException:
            await asyncio.to_thread(self._client.release)
            raise
        self._core = self._client.producer(self._producing)
        self._begin_checks()
        return self

    async def close(self) -> None:
        """Wait for handlers and for results of sends, commit offsets, close all connections."""
        self._cross_ports()
        self._core = self._admin = None
        try:
            if self._client.is_open:
                await self._client.io.run(self._client.close())
        finally:
            await asyncio.to_thread(self._client.release)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """The client ID that identifies this client to brokers."""
        return self._client.session.client_id

    @property
    def admin(self) -> Admin:
        """Administration of topics, groups, offsets, messages, brokers and the cluster."""
        if self._core is None:
            raise ClientClosed
        if self._admin is None:
            from kourou.client.admin.api import Admin  # a third of a client's imports

            self._admin = Admin(self._client.session)
        return self._admin

    def _producer_core(self) -> ProducerCore:
        if self._core is None:
            raise ClientClosed
        return self._core

    # -- producing --------------------------------------------------------------------------------

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

    # -- consuming --------------------------------------------------------------------------------

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
        """Return messages as an iterator: `async with`, then `async for`.

        `expression` is tags joined with `||`, or an `Sql`. Bodies are decoded as `body_type`.
        Without `topics` those of the setting `subscription` are used.
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
        """Call `handler` with every message. Use `async with`, or `start` and `close`.

        An `async def` handler runs on the current loop, a plain function in threads. With `batch`
        the handler receives lists of messages of one queue. If the handler returns, the messages
        are consumed; if it raises an exception, they are redelivered.

        With `ordered` the messages of each queue are delivered one after the other. Without
        `auto_commit` they count as consumed when the handler returns `ConsumeOrderlyStatus.COMMIT`.

        Arguments that are omitted come from the settings (`subscription`, `message_listener`). With
        `replies` the handler's return value is sent as the reply to a request (`request`).
        """
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
        handler = chosen_handler(wanted.settings, handler)
        if replies:
            handler = replying(handler, self._producer_core)
        return Listener(self._client, wanted, handler)

    def lease_consumer(
        self,
        topics: Topics,
        make_runner: Callable[[asyncio.AbstractEventLoop, HandlerReport], HandlerRunner],
        *,
        settings: ConsumerSettings,
        ordered: bool = False,
    ) -> LeaseConsumer:
        """Consume messages with the caller's own runner, which may hold them for other processes.

        Gateways build on this (kourou.client.consumer.lease_consumer); applications use `subscribe`
        or `listen`.
        """
        wanted = consumption(
            settings,
            topics,
            MATCH_ALL,
            group=None,
            body_type=None,
            offsets=None,
            ordered=ordered,
        )
        return LeaseConsumer(self._client, wanted, make_runner)

    async def pull_consumer(
        self,
        group: str | None = None,
        *,
        settings: PullConsumerSettings | None = None,
        body_type: Any = None,
    ) -> PullConsumer:
        """Return an open consumer that pulls on request; it closes with the client."""
        if settings is None:
            settings = PullConsumerSettings(consumer_group=group or self._consuming.consumer_group)
        client = await self._client.consuming()
        return await client.io.run(client.pull_consumer(settings, body_type=body_type))


class Producer(Requesting, AsyncTransactions):
    """An additional producer of a client. Use `async with`; the client must be open."""

    def __init__(self, client: ClientCore, settings: ProducerSettings) -> None:
        super().__init__()
        self._client = client
        self._settings = settings

    async def open(self) -> Self:
        """Start the producer."""
        self._core = self._client.producer(self._settings)
        self._begin_checks()
        return self

    async def close(self) -> None:
        """Wait for the outcomes of sends and leave the group."""
        self._cross_ports()
        core: ProducerCore | None
        core, self._core = self._core, None
        if core is not None and self._client.is_open:
            await core.io.run(self._client.close_producer(core))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class TransactionProducer(TransactionSending, Producer):
    """A producer of transactions with an executor and a checker; the client must be open."""

    def __init__(
        self, client: ClientCore, settings: ProducerSettings, execute: Executor, check: Checker
    ) -> None:
        super().__init__(client, settings)
        self._set_functions(execute, check)
