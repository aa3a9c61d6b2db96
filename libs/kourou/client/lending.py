"""A group member whose messages are held for others, who say later what became of each.

A runner is given the messages and reports of each (kourou.client.handlers). Nothing here looks for
handlers that take too long: the caller knows how long somebody may hold a message.

State: soft. What is not finished is not committed, so it comes again if this process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from kourou.client.client_core import ClientCore
from kourou.client.consumers import Consuming
from kourou.client.consumption import Consumption
from kourou.client.filters import Wanted, ask_brokers, check_wanted, subscription_of
from kourou.client.handlers import Report, Runner
from kourou.client.ordered_consumer import OrderedConsumer
from kourou.client.push_consumer import PushConsumer
from kourou.client.received import ReceivedMessage
from kourou.errors import BadRequest
from kourou.model.names import retry_topic


class _Lends(Protocol):
    """What both kinds of lending members can do."""

    async def also(self, topic: str, wanted: Wanted) -> None: ...
    async def without(self, topic: str) -> None: ...
    async def give_back(
        self, message: ReceivedMessage, delay_level: int, reason: str, *, finish: bool
    ) -> None: ...


class LendingConsumer(PushConsumer):
    """One member, without order. Used on the I/O thread."""

    async def also(self, topic: str, wanted: Wanted) -> None:
        """Consume one more topic. Raises what a broker refuses the filter with.

        BadRequest for a topic that is consumed already.
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
        """Consume a topic no more: its queues are committed and left to other members."""
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
        """Give a message back to the brokers now; raises KourouError if none takes it.

        With `finish` it then leaves its window. `delay_level` as kourou.client.send_back has it.
        """
        await self._send_back.send_back(message, delay_level=delay_level, reason=reason)
        self.counts.sent_back += 1
        self._retry_wanted()
        if finish:
            message.lease.finish([message.offset])


class OrderedLendingConsumer(LendingConsumer, OrderedConsumer):
    """One member that consumes in order."""


class Lender(Consuming):
    """A lending member, opened and closed from the caller's loop."""

    def __init__(
        self,
        client: ClientCore,
        wanted: Consumption,
        make_runner: Callable[[asyncio.AbstractEventLoop, Report], Runner],
    ) -> None:
        super().__init__(client, wanted)
        self._make = make_runner

    def _make_runner(self, loop: asyncio.AbstractEventLoop, report: Report) -> Runner:
        return self._make(loop, report)

    async def _open(self, make_runner: Callable[[Report], Runner]) -> PushConsumer:
        return await self._client.push_consumer(
            self._wanted, make_runner, free=LendingConsumer, ordered=OrderedLendingConsumer
        )

    @property
    def _lends(self) -> _Lends:
        consumer = self._started
        assert isinstance(consumer, LendingConsumer), "made by _open"
        return consumer

    async def queue_count(self) -> int:
        """How many queues this member has, those of the group's retry topic not counted."""

        async def count() -> int:  # where queues come and go
            return len(self._started.assigned)

        return await self._client.io.run(count())

    async def also(self, topic: str, wanted: Wanted) -> None:
        """Consume one more topic. Raises Rejected with the words of a broker that refuses it."""
        check_wanted(wanted)
        await self._client.io.run(self._lends.also(topic, wanted))

    async def without(self, topic: str) -> None:
        """Consume a topic no more."""
        await self._client.io.run(self._lends.without(topic))

    async def give_back(
        self,
        message: ReceivedMessage,
        *,
        delay_level: int = 0,
        reason: str = "",
        finish: bool = True,
    ) -> None:
        """Give a message back; when this returns the brokers have it. Raises KourouError.

        0 lets the broker choose the pause by the number of attempts, a negative level makes it a
        dead letter. Without `finish` the runner still has to report it.
        """
        work = self._lends.give_back(message, delay_level, reason, finish=finish)
        await self._client.io.run(work)
