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
from kourou.client.connections import Dial
from kourou.client.consumers import Listener, Subscribed
from kourou.client.consumption import Topics, chosen_handler, consumption, group_defaults
from kourou.client.filters import Wanted
from kourou.client.handlers import Report, Runner
from kourou.client.io_thread import ClientClosed
from kourou.client.lending import Lender
from kourou.client.offsets import OffsetStore
from kourou.client.producer import ProducerCore
from kourou.client.pull_consumer import PullConsumer
from kourou.client.requesting import Requesting, replying
from kourou.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.client.transaction_checks import Checker
from kourou.client.transaction_producer import Executing, Executor
from kourou.client.transactions import Transactions
from kourou.model.subscription import MATCH_ALL

if TYPE_CHECKING:
    from kourou.client.admin import Admin


class Client(Requesting, Transactions):
    """One application's door to a cluster. Open it with `async with`, or with `open` and `close`.

    `group` is the default for producing and consuming; settings that are given name their own.
    `options` are process options by their RocketMQ names, above those of `python -X`. `dial` makes
    connections another way than by ZeroMQ, for tests and for embedding.
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

    # -- life -------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Open the client; no server is spoken to before it is needed."""
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
        """Let handlers finish, commit, wait for the outcomes of sends, end every conversation."""
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
        """The name brokers know this client by."""
        return self._client.session.client_id

    @property
    def admin(self) -> Admin:
        """Topics, groups, offsets, messages by id or key, brokers, the cluster."""
        if self._core is None:
            raise ClientClosed
        if self._admin is None:
            from kourou.client.admin import Admin  # a third of what a client has to import

            self._admin = Admin(self._client.session)
        return self._admin

    def _producer_core(self) -> ProducerCore:
        if self._core is None:
            raise ClientClosed
        return self._core

    # -- producing --------------------------------------------------------------------------------

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
        """Messages as an iteration (kourou.client.streams): `async with` it, then `async for`.

        `expression` joins tags with `||`, or is an `Sql`; `body_type` is what bodies are decoded
        as. Without topics those of the setting `subscription` are meant.
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
        """Call `handler` with every message: `async with` it, or `start` and `close` it.

        An `async def` handler runs on the current loop, a plain function in threads. With `batch`
        it takes lists of messages of one queue. Returning consumes, raising asks for a retry.
        `ordered` gives each queue's messages one after the other; without `auto_commit` they count
        as consumed when the handler returns `ConsumeOrderlyStatus.COMMIT`.
        What is not given here comes from the settings (`subscription`, `message_listener`). With
        `replies` what the handler returns is the reply to a request (`request`).
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

    def lend(
        self,
        topics: Topics,
        make_runner: Callable[[asyncio.AbstractEventLoop, Report], Runner],
        *,
        settings: ConsumerSettings,
        ordered: bool = False,
    ) -> Lender:
        """Messages for a runner of the caller's own, which may hold them for others.

        That is what gateways build on (kourou.client.lending); applications subscribe or listen.
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
        return Lender(self._client, wanted, make_runner)

    async def pull_consumer(
        self,
        group: str | None = None,
        *,
        settings: PullConsumerSettings | None = None,
        body_type: Any = None,
    ) -> PullConsumer:
        """An open consumer that asks for itself; it closes with the client."""
        if settings is None:
            settings = PullConsumerSettings(consumer_group=group or self._consuming.consumer_group)
        client = await self._client.consuming()
        return await client.io.run(client.pull_consumer(settings, body_type=body_type))


class Producer(Requesting, Transactions):
    """A producer beside a client's own. Open it with `async with`; the client must be open."""

    def __init__(self, client: ClientCore, settings: ProducerSettings) -> None:
        super().__init__()
        self._client = client
        self._settings = settings

    async def open(self) -> Self:
        """Begin to produce."""
        self._core = self._client.producer(self._settings)
        self._begin_checks()
        return self

    async def close(self) -> None:
        """Wait for the outcomes of sends, leave the group."""
        self._cross_ports()
        core: ProducerCore | None
        core, self._core = self._core, None
        if core is not None and self._client.is_open:
            await core.io.run(self._client.close_producer(core))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class TransactionProducer(Executing, Producer):
    """A producer of transactions with an executor and a checker; the client must be open."""

    def __init__(
        self, client: ClientCore, settings: ProducerSettings, execute: Executor, check: Checker
    ) -> None:
        super().__init__(client, settings)
        self._executes(execute, check)
