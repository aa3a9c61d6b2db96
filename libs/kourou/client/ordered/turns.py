"""A turn: messages of one queue that the handler processes one after the other.

Passing single messages to the handler's thread, and waiting for each, would cost two thread
switches per message. So a runner gets a turn, and the handler is called in a loop in its thread:

    I/O thread --submit(turn)--> runner --call--> loop over the turn --> handler(item)

Before every call the loop checks that the turn was not stopped (the queue moves to another
consumer, or the consumer closes), that the lock is valid, and that the window is still the queue's.
After TURN_MS the turn ends, so that other queues are processed and offsets advance.

Invariants:

- the first `done` items are finished, in order; `done` never decreases
- `calling` is true while a handler runs. It is set before `stopped` is read, so after stopping a
  turn with `calling` false it is certain that no handler runs

State: soft. A turn's fields are written by one side and read by the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kourou.client.consumer.handlers import TURNS_PER_YIELD, Item, call_plain
from kourou.client.consumer.outcomes import ConsumeOrderlyStatus, ordered_failure_in
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.introspection.running_info import NOT_MEASURED, SELDOM, ConsumeLog
from kourou.client.ordered.locks import HeldLock
from kourou.clock import Clock

TURN_ITEMS = 256
TURN_MS = 100

_UNSAID = object()


class OneRefused(Exception):
    """In a list, the handler rejected the message at `index` with `error`.

    The messages before it were consumed; those after it wait, to keep the order.
    """

    def __init__(self, index: int, error: BaseException) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


class DeliveryTurn:
    """Items of one queue, and the handler's progress with them."""

    __slots__ = (
        "_clock",
        "_hold",
        "calling",
        "committed",
        "done",
        "ends_ms",
        "items",
        "stopped",
        "taken",
    )

    def __init__(self, items: Sequence[Item], hold: HeldLock, clock: Clock) -> None:
        self.items = items
        self.done = 0
        self.committed = 0
        """The number of finished items that a COMMIT covers, if the handler commits."""
        self.taken = 0
        """The number of finished items that the I/O thread has already counted."""
        self.stopped = False
        self.calling = False
        self.ends_ms = 0
        self._hold = hold
        self._clock = clock

    def begin(self) -> None:
        """Start the time limit; called when a runner starts the turn."""
        self.ends_ms = self._clock.monotonic_ms() + TURN_MS

    def next(self) -> Item | None:
        """Return the item to call the handler with now, or None at the end of the turn."""
        self.calling = True
        done = self.done
        if not self.stopped and done < len(self.items):
            now_ms = self._clock.monotonic_ms()
            if (now_ms < self.ends_ms or done == 0) and self._hold.valid(now_ms):
                item = self.items[done]
                first = item[0] if type(item) is list else item
                if not first.lease.window.dropped:
                    return item
        self.calling = False
        return None

    def evaluate(self, item: Item, result: object) -> None:
        """Evaluate the handler's return value; raises the failure that it or a message requests."""
        lease = (item[0] if type(item) is list else item).lease
        if lease is not None and lease.asked and self._is_acknowledged(item):
            self.done += 1
            return
        if result is not None:
            failure = ordered_failure_in(result)
            if failure is not None:
                raise failure
            if result is ConsumeOrderlyStatus.COMMIT:
                self.committed = self.done + 1
        self.done += 1

    def raised(self, item: Item) -> bool:
        """Handle an exception of the handler; returns whether the item is finished nevertheless."""
        finished = self._is_acknowledged(item, raised=True)
        if finished:
            self.done += 1
        return finished

    def _is_acknowledged(self, item: Item, *, raised: bool = False) -> bool:
        """Return whether the handler acknowledged the item's messages itself.

        Raises the first failure that it requested. The first acknowledgement of a message counts,
        whatever the handler returns or raises. If the handler raised, messages that it did not
        acknowledge were not consumed.
        """
        lease = first_of(item).lease
        if lease is None or not lease.asked:
            return False
        asked = lease.asked
        words = [asked.pop(message.offset, _UNSAID) for message in messages_of(item)]
        for index, word in enumerate(words):
            if isinstance(word, BaseException):
                if len(words) > 1:
                    raise OneRefused(index, word)
                raise word
            if raised and word is _UNSAID:
                return False
        return all(word is None for word in words)


class SingleTurn(DeliveryTurn):
    """One item without a queue: a message that is passed to a consumer directly."""

    __slots__ = ()

    def next(self) -> Item | None:
        """Return the item, once."""
        return self.items[0] if self.done == 0 else None


def first_of(item: Item) -> ReceivedMessage:
    """Return the message, or the first one of a list."""
    message: ReceivedMessage = item[0] if type(item) is list else item
    return message


def messages_of(item: Item) -> list[ReceivedMessage]:
    """Return the messages of an item."""
    return item if type(item) is list else [item]


def plain_turns(handler: Callable[[Any], Any], log: ConsumeLog) -> Callable[[DeliveryTurn], None]:
    """Wrap a plain function as a handler of turns."""

    def take(turn: DeliveryTurn) -> None:
        turn.begin()
        logged = log.writes
        while (item := turn.next()) is not None:
            try:
                if seldom := not turn.done & SELDOM:
                    logged = log.writes
                started_ms = log.begin(measured=True) if seldom or logged else NOT_MEASURED
                turn.evaluate(item, call_plain(handler, item))
                if started_ms != NOT_MEASURED:
                    log.consumed(item, started_ms)
            except Exception:  # no failure if the handler had acknowledged the item before
                if not turn.raised(item):
                    raise
            finally:
                turn.calling = False

    return take


def coroutine_turns(
    handler: Callable[[Any], Awaitable[Any]], log: ConsumeLog
) -> Callable[[DeliveryTurn], Awaitable[None]]:
    """Wrap an `async def` as a handler of turns."""

    async def take(turn: DeliveryTurn) -> None:
        turn.begin()
        logged = log.writes
        while (item := turn.next()) is not None:
            try:
                if seldom := not turn.done & SELDOM:
                    logged = log.writes
                started_ms = log.begin(measured=True) if seldom or logged else NOT_MEASURED
                turn.evaluate(item, await handler(item))
                if started_ms != NOT_MEASURED:
                    log.consumed(item, started_ms)
            except Exception:  # no failure if the handler had acknowledged the item before
                if not turn.raised(item):
                    raise
            finally:
                turn.calling = False
            if turn.done % TURNS_PER_YIELD == 0:
                await asyncio.sleep(0)

    return take


class TurnLog(ConsumeLog):
    """The log for a runner of turns; the turns themselves write the real one."""

    __slots__ = ("_real",)

    def __init__(self, real: ConsumeLog) -> None:
        self._real = real

    @property
    def writes(self) -> bool:
        """Return False: it writes nothing."""
        return False

    def begin(self, measured: bool = False) -> int:
        """Return NOT_MEASURED: a turn is not measured, the calls in it are."""
        return NOT_MEASURED

    def consumed(self, item: Item, started_ms: int) -> None:
        """Ignore the end of a turn."""

    def collect(self) -> list[int]:
        """Return the times of the real log."""
        return self._real.collect()
