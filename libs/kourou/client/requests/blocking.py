"""Request-reply over messages, for threads.

State: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kourou.client.consumer.received import ReceivedMessage
from kourou.client.producer.blocking_sends import BlockingSends, Waiter
from kourou.client.producer.drafts import joined_keys
from kourou.client.producer.producer_core import Choice
from kourou.client.session.io_thread import ClientClosed
from kourou.errors import KourouError
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
                    core.unsent(
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
