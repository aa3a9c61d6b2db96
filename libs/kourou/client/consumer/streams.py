"""Iteration over messages: `async for` on the application's loop, or plain `for` in a thread.

    async with client.subscribe("orders", "paid || refunded", body_type=Order) as orders:
        async for message in orders:
            await handle(message.body)              # the next iteration acknowledges this one

    async for message in orders:
        async with message:                         # acknowledges, or requests a retry if it raises
            await handle(message.body)

With `auto_ack=False` only `message.ack()` and `with message` acknowledge, for applications that
process several messages concurrently. A message that is neither acknowledged nor rejected holds
back the group's offset and, at the limits of the window, its queue.

State: soft.
"""

from __future__ import annotations

import asyncio
import queue as queues
from collections import deque
from collections.abc import Sequence
from typing import Self
from weakref import WeakKeyDictionary

from kourou.client.consumer.handlers import HandlerReport
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.introspection.running_info import NOT_MEASURED, ConsumeLog
from kourou.client.session.io_thread import ThreadQueue
from kourou.errors import BadRequest


class _MessageIterator:
    """The shared part of both iterators: the last message, and the reports of outcomes."""

    def __init__(self, report: HandlerReport, log: ConsumeLog, *, auto_ack: bool) -> None:
        self._report = report
        self._log = log
        self._auto_ack = auto_ack
        self._last: ReceivedMessage | None = None
        self._started_ms: WeakKeyDictionary[ReceivedMessage, int] = WeakKeyDictionary()
        self._delivered: dict[int, ReceivedMessage] = {}  # by id; not with auto_ack

    def ack(self, message: ReceivedMessage) -> None:
        """Report a message as consumed."""
        self._delivered.pop(id(message), None)
        self._report.finished(message)
        if self._started_ms:
            self._log.consumed(message, self._started_ms.pop(message, NOT_MEASURED))

    def retry(self, message: ReceivedMessage, error: BaseException) -> None:
        """Report a message as failed."""
        self._delivered.pop(id(message), None)
        self._report.failed(message, error)
        if self._started_ms:
            self._started_ms.pop(message, None)

    def _ack_previous(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.ack()

    def _deliver(self, message: ReceivedMessage, *, measured: bool) -> ReceivedMessage:
        message.receipt = self
        started_ms = self._log.begin(measured)
        if started_ms != NOT_MEASURED:
            self._started_ms[message] = started_ms
        if self._auto_ack:
            self._last = message
        else:
            self._delivered[id(message)] = message
        return message

    def running(self) -> list[ReceivedMessage]:
        """Return the delivered messages that were neither acknowledged nor rejected."""
        last = self._last
        return list(self._delivered.values()) if last is None else [last]

    def times(self) -> list[int]:
        """Return the measured times from delivery to acknowledgement, in ms."""
        return self._log.collect()

    async def call(self, item: ReceivedMessage) -> BaseException | None:
        """Raise BadRequest: an iterator has no handler to call."""
        raise BadRequest(
            "this consumer is read by iteration, so it cannot consume a message directly"
        )


class StreamRunner(_MessageIterator):
    """A runner whose messages are read with `async for` on one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: HandlerReport,
        log: ConsumeLog,
        *,
        auto_ack: bool,
    ) -> None:
        super().__init__(report, log, auto_ack=auto_ack)
        self._inbox: ThreadQueue[ReceivedMessage] = ThreadQueue(loop, self._accept)
        self._loop = loop
        self._ready: deque[ReceivedMessage] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def submit(self, items: Sequence[ReceivedMessage]) -> None:
        """Accept messages."""
        self._inbox.put_many(list(items))

    def _accept(self, items: list[ReceivedMessage]) -> None:
        self._ready.extend(items)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        self._ack_previous()
        while True:
            while self._ready:
                message = self._ready.popleft()
                if self._report.wanted(message):
                    return self._deliver(message, measured=not self._ready)
            if self._closed:
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def close(self, timeout_ms: int) -> bool:
        """End the iteration; messages that were not read are redelivered to another consumer."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)
        return True

    def _end(self) -> None:
        self._closed = True
        self._ready.clear()
        self._wake()


class BlockingStreamRunner(_MessageIterator):
    """A runner whose messages are read with `for` in one thread."""

    def __init__(self, report: HandlerReport, log: ConsumeLog, *, auto_ack: bool) -> None:
        super().__init__(report, log, auto_ack=auto_ack)
        self._ready: queues.SimpleQueue[ReceivedMessage | None] = queues.SimpleQueue()
        self._closed = False

    def submit(self, items: Sequence[ReceivedMessage]) -> None:
        """Accept messages."""
        for item in items:
            self._ready.put(item)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        self._ack_previous()
        while True:
            message = self._ready.get()
            if message is None or self._closed:
                self._ready.put(None)  # for further calls of __next__
                raise StopIteration
            if self._report.wanted(message):
                return self._deliver(message, measured=self._ready.empty())

    async def close(self, timeout_ms: int) -> bool:
        """End the iteration."""
        self._closed = True
        self._ready.put(None)
        return True
