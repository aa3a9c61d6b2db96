"""A consumer for gateways: messages are held for other clients, which acknowledge each one later.

A runner receives the messages and reports each outcome (kourou.client.consumer.handlers). No
handler timeout is checked here, because the caller defines how long a message may be held.

State: soft. Unfinished messages are not committed, so they are redelivered if this process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from kourou.client.client_core import ClientCore
from kourou.client.consumer.consumers import PushConsumerHandle
from kourou.client.consumer.consumption import Consumption
from kourou.client.consumer.handlers import HandlerReport, HandlerRunner
from kourou.client.consumer.push_consumer import PushConsumer
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Wanted, ask_brokers, check_wanted, subscription_of
from kourou.client.ordered.consumer import OrderedConsumer
from kourou.errors import BadRequest
from kourou.model.names import retry_topic


class _LeaseOperations(Protocol):
    """The operations that both kinds of lending consumers have."""

    async def also(self, topic: str, wanted: Wanted) -> None: ...
    async def without(self, topic: str) -> None: ...
    async def give_back(
        self, message: ReceivedMessage, delay_level: int, reason: str, *, finish: bool
    ) -> None: ...


class LendingConsumer(PushConsumer):
    """One unordered consumer. Used on the I/O thread."""

    async def also(self, topic: str, wanted: Wanted) -> None:
        """Subscribe to one more topic.

        Raises the broker's error if it refuses the filter, BadRequest if the topic is consumed
        already.
        """
        session = self._session
        subscription = subscription_of(topic, wanted, version=session.clock.now_ms())
        await ask_brokers(session, self.group, [subscription])
        async with self._rebalancing:
            if topic in self._subscriptions:
                raise BadRequest(f"group {self.group} already consumes {topic} in this client")
            self._subscriptions[topic] = subscription
        session.routes.watch(topic)
        await session.routes.find_existing(topic)
        await session.heartbeats.beat()
        await self._rebalance_once()

    async def without(self, topic: str) -> None:
        """Unsubscribe from a topic: its offsets are committed and its queues released."""
        if topic == retry_topic(self.group):
            raise BadRequest(
                "a group always consumes its retry topic; it cannot unsubscribe from it"
            )
        async with self._rebalancing:
            if self._subscriptions.pop(topic, None) is not None:
                await self._give_up(topic, set())
        await self._session.heartbeats.beat()

    async def give_back(
        self, message: ReceivedMessage, delay_level: int, reason: str, *, finish: bool
    ) -> None:
        """Send a message back to the brokers now. Raises KourouError if no broker accepts it.

        With `finish` it is then removed from its window. `delay_level` as in
        kourou.client.consumer.send_back.
        """
        await self._send_back.send_back(message, delay_level=delay_level, reason=reason)
        self.counts.sent_back += 1
        self._retry_wanted()
        if finish:
            message.lease.finish([message.offset])


class OrderedLendingConsumer(LendingConsumer, OrderedConsumer):
    """One orderly consumer."""


class LeaseConsumer(PushConsumerHandle):
    """A lending consumer that the caller opens and closes on its own loop."""

    def __init__(
        self,
        client: ClientCore,
        wanted: Consumption,
        make_runner: Callable[[asyncio.AbstractEventLoop, HandlerReport], HandlerRunner],
    ) -> None:
        super().__init__(client, wanted)
        self._make = make_runner

    def _make_runner(self, loop: asyncio.AbstractEventLoop, report: HandlerReport) -> HandlerRunner:
        return self._make(loop, report)

    async def _open(self, make_runner: Callable[[HandlerReport], HandlerRunner]) -> PushConsumer:
        return await self._client.push_consumer(
            self._wanted, make_runner, free=LendingConsumer, ordered=OrderedLendingConsumer
        )

    @property
    def _operations(self) -> _LeaseOperations:
        consumer = self._started
        assert isinstance(consumer, LendingConsumer), "made by _open"
        return consumer

    async def queue_count(self) -> int:
        """Return the number of assigned queues, without those of the group's retry topic."""

        async def count() -> int:  # on the loop where assignments change
            return len(self._started.assigned)

        return await self._client.io.run(count())

    async def also(self, topic: str, wanted: Wanted) -> None:
        """Subscribe to one more topic. Raises Rejected with the broker's reason if it refuses."""
        check_wanted(wanted)
        await self._client.io.run(self._operations.also(topic, wanted))

    async def without(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        await self._client.io.run(self._operations.without(topic))

    async def give_back(
        self,
        message: ReceivedMessage,
        *,
        delay_level: int = 0,
        reason: str = "",
        finish: bool = True,
    ) -> None:
        """Send a message back; when this returns, the brokers have stored it. Raises KourouError.

        With level 0 the broker derives the delay from the number of attempts; a negative level
        makes the message a dead letter. Without `finish` the runner still has to report it.
        """
        work = self._operations.give_back(message, delay_level, reason, finish=finish)
        await self._client.io.run(work)
