"""The asynchronous API of a producer: `await send(...)` and related methods.

A SendResult means that the broker has stored the message; its status tells how durably. The errors
`Unavailable` and `Rejected` mean: not stored; `UnknownOutcome` means: possibly stored. If a send is
cancelled while it waits for its reply, the message may still be stored.

State: soft; one port for each event loop that sends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, overload

from kourou.client.producer.batches import (
    PARTS_UNDER_WAY,
    MakeGathering,
    as_messages,
    pending_batch,
    pending_many,
    results,
)
from kourou.client.producer.drafts import delay_property
from kourou.client.producer.pending_sends import BatchResult, Gathering, LoopPort, Outcome
from kourou.client.producer.producer_core import (
    ROUND_ROBIN,
    Choice,
    ProducerCore,
    TopicTargets,
    choice_of_named,
)
from kourou.client.producer.selectors import Selector
from kourou.client.session.io_thread import ClientClosed
from kourou.model.limits import FRAME_RECORDS_MAX
from kourou.model.message import Message, SendResult
from kourou.model.topic import MessageQueue


class _RouteRequest:
    """A running request for a route and its waiters; `over` when they have their result."""

    __slots__ = ("over", "task", "waiters")

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.waiters: list[asyncio.Future[TopicTargets]] = []
        self.over = False


class Sends:
    """Sending on an event loop. `Client` and `Producer` have these methods."""

    def __init__(self) -> None:
        self._core: ProducerCore | None = None
        self._ports: dict[asyncio.AbstractEventLoop, LoopPort] = {}
        self._finding: dict[tuple[asyncio.AbstractEventLoop, str], _RouteRequest] = {}

    # -- one message ------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        body: Any,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        flag: int = 0,
        delay_level: int = 0,
        delay: timedelta | None = None,
        wait_store_ok: bool = True,
        timeout_ms: int | None = None,
        message_id: str | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker acknowledges it.

        `body` is bytes, a string, or any value with a JSON form (kourou.client.codecs). `order_key`
        sends all messages with the same key to one queue; `queue` names the queue;
        `selector(queues, message, argument)` selects it; otherwise queues are used in turn.

        `delay_level` or `delay`, which equals that of a level, delays the delivery. With
        `wait_store_ok` False the broker replies before the message is flushed and replicated.
        Raises Rejected, Unavailable or UnknownOutcome.

        `message_id` is the application's own ID: 32 hexadecimal digits in upper case. If a message
        with this ID and body arrived within the last minutes, from any client, the broker does not
        store it again and replies with its offset.
        """
        core, port = self._port()
        if port.full:
            await port.room()
        targets = core.known(topic)
        if targets is None or self._finding:
            targets = await self._find(core, topic)
        choice = ROUND_ROBIN
        if order_key is not None or queue is not None or selector is not None:
            choice = Choice(order_key, queue, selector, argument)
        own = None
        if delay_level or delay is not None:
            own = delay_property(core.settings.delay_levels_ms, delay_level, delay)
        if message_id is not None:
            choice = choice_of_named(choice, message_id)
        terms = core.usual
        if choice is not ROUND_ROBIN or timeout_ms is not None or not wait_store_ok:
            terms = core.terms(
                timeout_ms=timeout_ms,
                wait=wait_store_ok,
                pinned=choice.pinned,
                repeated=message_id is not None,
            )
        waiter: asyncio.Future[SendResult] = port.loop.create_future()
        message = core.pending_send(
            targets, port, waiter, body, tag, keys, properties, flag, terms, choice, own, message_id
        )
        port.add(message)
        return await waiter

    async def send_async(
        self,
        topic: str,
        body: Any,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        flag: int = 0,
        delay_level: int = 0,
        delay: timedelta | None = None,
        wait_store_ok: bool = True,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send one message without waiting; the returned future receives its outcome.

        Waits only while too many messages are in flight.
        """
        core, port = self._port()
        if port.full:
            await port.room()
        targets = core.known(topic)
        if targets is None or self._finding:
            targets = await self._find(core, topic)
        choice = Choice(order_key, queue, selector, argument)
        terms = core.terms(timeout_ms=timeout_ms, wait=wait_store_ok, pinned=choice.pinned)
        waiter: asyncio.Future[SendResult] = port.loop.create_future()
        own = None
        if delay_level or delay is not None:
            own = delay_property(core.settings.delay_levels_ms, delay_level, delay)
        port.add(
            core.pending_send(
                targets, port, waiter, body, tag, keys, properties, flag, terms, choice, own
            )
        )
        return waiter

    async def send_oneway(
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
        delay_level: int = 0,
        delay: timedelta | None = None,
    ) -> None:
        """Send one message without waiting for a result: fast, but a loss is not reported."""
        core, port, targets = await self._ready(topic)
        choice = Choice(order_key, queue)
        terms = core.terms(timeout_ms=None, wait=True, oneway=True, pinned=choice.pinned)
        own = None
        if delay_level or delay is not None:
            own = delay_property(core.settings.delay_levels_ms, delay_level, delay)
        port.add(
            core.pending_send(
                targets, port, None, body, tag, keys, properties, flag, terms, choice, own
            )
        )

    # -- several messages -------------------------------------------------------------------------

    @overload
    async def send_many(
        self, messages: Iterable[Message], /, *, timeout_ms: int | None = None
    ) -> list[SendResult]: ...

    @overload
    async def send_many(
        self,
        topic: str,
        bodies: Iterable[Any],
        /,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[SendResult]: ...

    async def send_many(
        self,
        first: str | Iterable[Message],
        bodies: Iterable[Any] | None = None,
        /,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send several messages of any topics; returns their results in order.

        The messages are independent and may fail separately: then SomeNotSent contains every
        outcome.
        """
        messages = as_messages(first, bodies, tag, keys)
        outcomes: list[Outcome] = []
        under_way: deque[asyncio.Future[list[Outcome]]] = deque()
        for at in range(0, len(messages), FRAME_RECORDS_MAX):
            part = messages[at : at + FRAME_RECORDS_MAX]
            under_way.append(await self._send_part(part, timeout_ms))
            if len(under_way) == PARTS_UNDER_WAY:
                outcomes += await under_way.popleft()
        for done in under_way:
            outcomes += await done
        return results(outcomes)

    async def _send_part(
        self, messages: list[Message], timeout_ms: int | None
    ) -> asyncio.Future[list[Outcome]]:
        core, port = self._port()
        await port.room()
        targets = {}
        for topic in dict.fromkeys(message.topic for message in messages):
            targets[topic] = await self._find(core, topic)
        done: asyncio.Future[list[Outcome]] = port.loop.create_future()
        port.add_all(pending_many(core, port, targets, messages, timeout_ms, _gathering(done)))
        return done

    async def send_batch(
        self,
        topic: str,
        bodies: Iterable[Any],
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        timeout_ms: int | None = None,
        message_ids: Sequence[str] = (),
    ) -> list[SendResult]:
        """Send messages of one topic as a batch: one queue, one request, all or none are stored.

        `bodies` are bodies or Message objects of this topic, 4 MiB in total at most. Raises
        MessageIllegal for a larger batch. `message_ids` are IDs as in `send`, one per message. A
        `selector` receives the first message.
        """
        messages = as_messages(topic, bodies, tag, keys)
        if not messages:
            return []
        core, port, targets = await self._ready(topic)
        waiter: asyncio.Future[BatchResult] = port.loop.create_future()
        choice = Choice(order_key, queue, selector, argument)
        port.add_batch(
            pending_batch(core, port, targets, messages, choice, timeout_ms, waiter, message_ids)
        )
        return (await waiter).results

    # -- internals --------------------------------------------------------------------------------

    def _port(self) -> tuple[ProducerCore, LoopPort]:
        core = self._core
        if core is None:
            raise ClientClosed
        core.io.check()
        loop = asyncio.get_running_loop()
        port = self._ports.get(loop)
        return core, self._new_port(core, loop) if port is None else port

    def _new_port(self, core: ProducerCore, loop: asyncio.AbstractEventLoop) -> LoopPort:
        for other in [other for other in self._ports if other.is_closed()]:
            del self._ports[other]
        port = self._ports[loop] = core.port(loop)
        return port

    async def _find(self, core: ProducerCore, topic: str) -> TopicTargets:
        """Return the targets of a topic; callers that wait for its route keep their order."""
        loop = asyncio.get_running_loop()
        key = (loop, topic)
        finding = self._finding.get(key)
        if finding is not None and finding.over:
            await asyncio.sleep(0)  # earlier waiters run first, in this iteration
            finding = self._finding.get(key)
        if finding is None:
            targets = core.known(topic)
            if targets is not None:
                return targets
            finding = self._finding[key] = _RouteRequest(
                asyncio.ensure_future(self._ask(core, key))
            )
        waiter: asyncio.Future[TopicTargets] = loop.create_future()
        finding.waiters.append(waiter)
        return await waiter

    async def _ask(self, core: ProducerCore, key: tuple[asyncio.AbstractEventLoop, str]) -> None:
        loop, topic = key
        targets: TopicTargets | None = None
        failure: Exception | None = None
        try:
            targets = await core.io.run(core.find(topic))
        except Exception as error:  # noqa: BLE001 - every waiter receives it, whatever it is
            failure = error
        finally:
            finding = self._finding[key]
            finding.over = True
            for waiter in finding.waiters:
                if waiter.done():
                    continue
                if targets is not None:
                    waiter.set_result(targets)
                elif failure is not None:
                    waiter.set_exception(failure)
                else:
                    waiter.cancel()
            loop.call_soon(self._finding.pop, key, None)  # after the waiters have run

    async def _ready(self, topic: str) -> tuple[ProducerCore, LoopPort, TopicTargets]:
        core, port = self._port()
        if port.full:
            await port.room()
        targets = core.known(topic)
        if targets is None or self._finding:
            targets = await self._find(core, topic)
        return core, port, targets

    def _cross_ports(self) -> None:
        """Send what the running loop has collected so far; called before closing."""
        port = self._ports.get(asyncio.get_running_loop())
        if port is not None:
            port.cross()


def _gathering(done: asyncio.Future[list[Outcome]]) -> MakeGathering:
    def complete(outcomes: list[Outcome]) -> None:
        if not done.done():
            done.set_result(outcomes)

    return lambda count: Gathering(count, complete)
