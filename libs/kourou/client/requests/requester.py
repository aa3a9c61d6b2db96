"""Request-reply on an event loop: a request, its reply, and handlers that reply.

State: none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from kourou.client.consumer.handlers import is_coroutine_handler
from kourou.client.consumer.outcomes import failure_in
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.producer.drafts import joined_keys
from kourou.client.producer.producer_core import Choice, ProducerCore
from kourou.client.producer.sends import Sends
from kourou.client.requests.replies import is_request
from kourou.client.session.io_thread import ClientClosed
from kourou.errors import BadRequest, KourouError
from kourou.model.message import SendResult
from kourou.model.topic import MessageQueue

_log = logging.getLogger("kourou.client")


class Requesting(Sends):
    """Sending of requests and replies. `Client` and `Producer` have these methods."""

    async def request(
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
        """Send a request and wait for its reply, whose body is decoded as `body_type`.

        A consumer of the topic replies: with `reply`, with a handler and `replies=True`, or with
        RocketMQ's client. `timeout_ms` (default: send_timeout_ms) covers both directions. Raises
        the errors of `send`, and ReplyTimedOut if no reply arrives.
        """
        core, port, targets = await self._ready(topic)
        requests, group = core.requests, core.settings.producer_group
        if timeout_ms is None:
            timeout_ms = core.settings.send_timeout_ms
        choice = Choice(order_key, queue)
        terms = core.terms(timeout_ms=timeout_ms, wait=True, pinned=choice.pinned)
        until_ms = core.clock.monotonic_ms() + timeout_ms
        if not requests.is_prepared(group, topic):
            await core.io.run(requests.prepare(group, topic))
        waiting = requests.open(timeout_ms, body_type)
        try:
            sent: asyncio.Future[SendResult] = port.loop.create_future()
            own = waiting.properties
            port.add(
                core.pending_send(
                    targets, port, sent, body, tag, keys, properties, flag, terms, choice, own
                )
            )
            try:
                await sent
            except KourouError:
                if not waiting.future.done():  # a received reply outweighs a lost send result
                    raise
            left_ms = until_ms - core.clock.monotonic_ms()
            try:
                async with asyncio.timeout(max(left_ms, 0) / 1000):
                    return await asyncio.wrap_future(waiting.future)
            except TimeoutError:
                raise waiting.late() from None
        finally:
            requests.close(waiting)

    async def reply(
        self,
        message: ReceivedMessage,
        body: Any,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> None:
        """Reply to a request that was received. Returns when the requester has received the reply.

        Raises BadRequest if the message is not a request, and ReplyNotTaken if the requester is not
        connected any more.
        """
        core = self._core
        if core is None:
            raise ClientClosed
        work = core.replier.reply(
            message, body, tag=tag, keys=joined_keys(keys), properties=properties, flag=flag
        )
        await core.io.run(work)


def replying(
    handler: Callable[[Any], Any], core: Callable[[], ProducerCore]
) -> Callable[[Any], Any]:
    """Wrap a handler so that its result, unless None or a failure, is the reply to its message.

    For messages that are not requests the result has its usual meaning. A reply that cannot be sent
    is logged, and the message counts as consumed: the requester gets a timeout.
    """
    if is_coroutine_handler(handler):

        @wraps(handler)
        async def awaited(message: ReceivedMessage) -> Any:
            result = await handler(message)
            if not _is_reply(message, result):
                return result
            producer = core()
            try:
                await producer.io.run(producer.replier.reply(message, result))
            except KourouError as error:
                _not_sent(message, error)
            return None

        return awaited

    @wraps(handler)
    def called(message: ReceivedMessage) -> Any:
        result = handler(message)
        if not _is_reply(message, result):
            return result
        producer = core()
        try:
            producer.io.submit(producer.replier.reply(message, result)).result()
        except KourouError as error:
            _not_sent(message, error)
        return None

    return called


def _is_reply(message: ReceivedMessage, result: Any) -> bool:
    if result is None or failure_in(result) is not None:
        return False
    if isinstance(message, list):
        raise BadRequest(
            "a batch handler cannot return a reply", hint="remove batch, or call reply()"
        )
    return is_request(message)


def _not_sent(message: ReceivedMessage, error: KourouError) -> None:
    _log.warning(
        "reply-refused: reply to %(record)s was not accepted: %(error)s",
        {"record": message, "error": error},
    )
