"""Transfers messages between the client library's group member and the leases, in both directions.

Without order each message is transferred on its own. In order, the library transfers *turns* of a
queue. One message of a turn is leased, and after its lease has ended the turn is returned; so the
queue's next message comes only after that.

State: soft.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from kourou.client.consumer.handlers import HandlerReport
from kourou.client.consumer.outcomes import Suspend
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.ordered.turns import DeliveryTurn
from kourou.client.session.io_thread import ThreadQueue
from kourou.errors import BadRequest

ItemT = TypeVar("ItemT")


class LeasableMessage(Protocol):
    """A transferred message, and how to return it. Used on the gateway's loop."""

    @property
    def message(self) -> ReceivedMessage:
        """The message itself."""
        ...

    def may_begin(self) -> bool:
        """Whether it may be leased now: its queue is assigned to us, and locked if in order."""
        ...

    def counts(self) -> bool:
        """Whether an acknowledgement still counts, as the queue is assigned to us."""
        ...

    def finish(self) -> None:
        """It was consumed, or returned to the brokers."""
        ...

    def withdraw(self) -> None:
        """It will not be leased any more."""
        ...

    def again(self, attempt: int) -> None:
        """In order only: it is redelivered after a moment, before the rest of its queue."""
        ...


class _Runner(ABC, Generic[ItemT]):
    """The common part of both runners."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: HandlerReport,
        arrived: Callable[[Sequence[LeasableMessage]], None],
        closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._report = report
        self._arrived = arrived
        self._on_closed = closed
        self._closing = False
        self._held: set[ItemT] = set()  # the turns that are not returned
        self._inbox: ThreadQueue[ItemT] = ThreadQueue(loop, self._take)

    def submit(self, items: Sequence[ItemT]) -> None:
        """Accept messages or turns; called on the I/O thread."""
        if not self._closing:
            self._inbox.put_many(list(items))

    @abstractmethod
    def _take(self, items: list[ItemT]) -> None: ...

    def running(self) -> list[ReceivedMessage]:
        """No messages: the library's time limit does not apply, because leases have their own."""
        return []

    def times(self) -> list[int]:
        """Nothing is measured here."""
        return []

    async def call(self, item: object) -> BaseException | None:
        """Rejects the call, because there is no handler."""
        raise BadRequest(
            "this consumer leases messages to HTTP clients; it cannot consume a message directly"
        )

    async def close(self, timeout_ms: int) -> bool:
        """Close without waiting for leases: unfinished messages are redelivered elsewhere."""
        self._closing = True
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so are all leases
            self._loop.call_soon_threadsafe(self._on_closed)
        return True


class _UnorderedMessage:
    """A message of an unordered member."""

    __slots__ = ("_report", "message")

    def __init__(self, message: ReceivedMessage, report: HandlerReport) -> None:
        self.message = message
        self._report = report

    def may_begin(self) -> bool:
        return self._report.wanted(self.message)

    def counts(self) -> bool:
        return self._report.wanted(self.message)

    def finish(self) -> None:
        self._report.finished(self.message)

    def withdraw(self) -> None:
        """Does nothing: its window was dropped."""

    def again(self, attempt: int) -> None:
        raise AssertionError("without order a message goes back to the brokers")


class FreeRunner(_Runner[ReceivedMessage]):
    """The runner of an unordered member."""

    def _take(self, items: list[ReceivedMessage]) -> None:
        # Copies, so that a message held for hours does not keep a whole pull in memory.
        self._arrived([_UnorderedMessage(one.alone(), self._report) for one in items])


class _OrderedMessage:
    """The first message of a turn."""

    __slots__ = ("_runner", "_turn", "message")

    def __init__(self, message: ReceivedMessage, turn: DeliveryTurn, runner: TurnRunner) -> None:
        self.message = message
        self._turn = turn
        self._runner = runner

    def may_begin(self) -> bool:
        return self._turn.next() is self.message

    def counts(self) -> bool:
        return not self.message.lease.window.dropped

    def finish(self) -> None:
        self._turn.evaluate(self.message, None)
        self._runner.end(self._turn, None)

    def withdraw(self) -> None:
        self._runner.end(self._turn, None)

    def again(self, attempt: int) -> None:
        self.message.attempt = attempt
        self._runner.end(self._turn, Suspend())


class TurnRunner(_Runner[DeliveryTurn]):
    """The runner of an ordered member."""

    def _take(self, items: list[DeliveryTurn]) -> None:
        for turn in items:
            turn.begin()
            message = turn.next()
            if message is None:
                self._report.finished(turn)
            else:
                self._held.add(turn)
                self._arrived([_OrderedMessage(message, turn, self)])

    def end(self, turn: DeliveryTurn, error: BaseException | None) -> None:
        """Return a turn; has an effect only once."""
        if turn not in self._held:
            return
        self._held.discard(turn)
        turn.calling = False
        if error is None:
            self._report.finished(turn)
        else:
            self._report.failed(turn, error)

    async def close(self, timeout_ms: int) -> bool:
        """Mark all turns as idle, then close."""
        for turn in list(self._held):
            turn.calling = False
        return await super().close(timeout_ms)
