"""The client: what an application opens to send, consume and administer.

    async with Client("127.0.0.1:9876", group="checkout") as mq:
        result = await mq.send("orders", Order("A-1", 42), tag="paid", keys=["A-1"])
        async with mq.subscribe("orders", "paid || refunded", body_type=Order) as orders:
            async for message in orders:
                await handle(message.body)

Lives here: the asynchronous facade and what it hands out. May not live here: any work; it delegates.

State: soft.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from kourou.client.admin import Admin
from kourou.client.client_core import ClientCore, Consumption
from kourou.client.consuming import ConsumeCounts
from kourou.client.handlers import CoroutineRunner, Report, Runner, ThreadRunner
from kourou.client.offsets import OffsetStore
from kourou.client.pull_consumer import PullConsumer
from kourou.client.received import ReceivedMessage
from kourou.client.sends import Sends
from kourou.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.client.streams import StreamRunner
from kourou.errors import BadRequest
from kourou.model.queue import MessageQueue
from kourou.model.subscription import MATCH_ALL

BATCH_SIZE = 32
"""Messages that one call of a batch handler takes at most, when nothing else is said."""

Topics = str | Mapping[str, str]
"""One topic, or tag expressions by topic."""


class Client(Sends):
    """One application's door to a cluster. Open it with `async with`, or with `open` and `close`.

    `group` is the default for producing and consuming; settings that are given name their own.
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
    ) -> None:
        super().__init__()
        self._client = ClientCore(namesrv_addr, settings or ClientSettings(), options=options)
        self._producer_settings, self._consumer_settings = group_defaults(group, producer, consumer)
        self._admin: Admin | None = None

    # -- life -------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Open the client; no server is spoken to before it is needed."""
        io = await asyncio.to_thread(self._client.acquire)
        try:
            await io.run(self._client.open())
        except BaseException:
            await asyncio.to_thread(self._client.release)
            raise
        self._core = self._client.producer(self._producer_settings)
        self._admin = Admin(self._client.session)
        return self

    async def close(self) -> None:
        """Let handlers finish, commit, wait for the outcomes of sends, end every conversation."""
        self._cross_ports()
        self._core = None
        self._admin = None
        io = self._client.thread
        if io is None:
            return
        try:
            if not io.orphaned:
                await io.run(self._client.close())
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
        if self._admin is None:
            self._client.session  # noqa: B018 - raises ClientClosed
            raise AssertionError("an open client has its administration")
        return self._admin

    # -- producing --------------------------------------------------------------------------------

    def producer(self, settings: ProducerSettings) -> Producer:
        """One more producer with settings of its own, for instance of another group."""
        return Producer(self._client, settings)

    # -- consuming --------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Topics,
        expression: str = MATCH_ALL,
        *,
        body_type: Any = None,
        group: str | None = None,
        settings: ConsumerSettings | None = None,
        offsets: OffsetStore | None = None,
        auto_ack: bool = True,
    ) -> Subscribed:
        """Messages as an iteration (kourou.client.streams): `async with` it, then `async for`.

        `expression` joins tags with `||`; `body_type` is what bodies are decoded as.
        """
        return Subscribed(
            self._client,
            self._consuming(group, settings),
            subscriptions_of(topics, expression),
            body_type,
            offsets,
            auto_ack=auto_ack,
        )

    def listen(
        self,
        topics: Topics,
        handler: Callable[[Any], Any],
        expression: str = MATCH_ALL,
        *,
        body_type: Any = None,
        group: str | None = None,
        settings: ConsumerSettings | None = None,
        offsets: OffsetStore | None = None,
        batch: bool | int = False,
    ) -> Listener:
        """Call `handler` with every message (F306): `async with` it, or `start` and `close`.

        An `async def` handler runs on the current loop, a plain function in threads. With `batch`
        it takes lists of messages of one queue. Returning consumes, raising asks for a retry.
        """
        return Listener(
            self._client,
            batched_settings(self._consuming(group, settings), batch),
            subscriptions_of(topics, expression),
            handler,
            body_type,
            offsets,
            batched=bool(batch),
        )

    async def pull_consumer(
        self,
        group: str | None = None,
        *,
        settings: PullConsumerSettings | None = None,
        body_type: Any = None,
    ) -> PullConsumer:
        """A consumer that asks for itself; it closes with the client."""
        chosen = settings or PullConsumerSettings(
            consumer_group=group or self._consumer_settings.consumer_group
        )
        work = self._client.pull_consumer(chosen, body_type=body_type)
        return await self._client.io.run(work)

    def _consuming(self, group: str | None, settings: ConsumerSettings | None) -> ConsumerSettings:
        chosen = settings or self._consumer_settings
        return chosen if group is None else replace(chosen, consumer_group=group)


class Producer(Sends):
    """A producer beside a client's own. Open it with `async with`; the client must be open."""

    def __init__(self, client: ClientCore, settings: ProducerSettings) -> None:
        super().__init__()
        self._client = client
        self._settings = settings

    async def open(self) -> Self:
        """Begin to produce."""
        self._core = self._client.producer(self._settings)
        return self

    async def close(self) -> None:
        """Wait for the outcomes of sends, leave the group."""
        self._cross_ports()
        core, self._core = self._core, None
        if core is not None:
            await core.io.run(self._client.close_producer(core))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Consuming:
    """What a listener and a subscription share: a push consumer on the I/O thread."""

    def __init__(self, client: ClientCore, consumption: Consumption) -> None:
        self._client = client
        self._consumption = consumption

    async def start(self) -> Self:
        """Join the group and begin."""
        loop = asyncio.get_running_loop()
        work = self._client.push_consumer(
            self._consumption, lambda report: self._runner(loop, report)
        )
        self._consumer = await self._client.io.run(work)
        return self

    def _runner(self, loop: asyncio.AbstractEventLoop, report: Report) -> Runner:
        raise AssertionError("each kind makes its own runner")

    async def close(self) -> None:
        """Let handlers finish, commit, leave the group."""
        await self._client.io.run(self._client.close_consumer(self._consumer))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues this member consumes now."""
        return self._consumer.assigned

    @property
    def counts(self) -> ConsumeCounts:
        """What was pulled, consumed, failed, filtered, corrected, unreadable."""
        return self._consumer.counts

    async def commit(self) -> None:
        """Commit now what is consumed, without waiting for the next interval."""
        await self._client.io.run(self._consumer.commit())
