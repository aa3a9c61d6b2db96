"""A turn: messages of one queue that a handler is given one after the other.

To hand over single messages and wait for each before the next would cost two changes of threads a
message. So a runner is given a turn, and the handler is called in a loop where it runs:

    I/O thread --hand(turn)--> runner --call--> loop over the turn --> handler(item)

Before every call the loop looks whether it may go on: the turn was not stopped (the queue goes to
somebody else, the consumer closes), the lock has not lapsed, its window is still the queue's. After
TURN_MS it ends, so that other queues have their turns, and progress is known.

Invariants:  `done` items are finished, in order, and it only grows
             `calling` is true while a handler runs; it is set before `stopped` is looked at, so
             who has stopped a turn and then finds it not calling knows that no handler runs

State: soft. A turn's fields are written by one side and read by the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kourou.client.consume_log import NOT_MEASURED, SELDOM, ConsumeLog
from kourou.client.handlers import TURNS_PER_YIELD, Item, call_plain
from kourou.client.ordered_locks import Hold
from kourou.client.ordered_outcomes import ConsumeOrderlyStatus, failure_of
from kourou.client.received import ReceivedMessage
from kourou.clock import Clock

TURN_ITEMS = 256
TURN_MS = 100

_UNSAID = object()


class OneRefused(Exception):
    """Of a list, the message at `index` was not consumed, as the handler said of it: `error`.

    Those before it were; those behind it wait, for the sake of order.
    """

    def __init__(self, index: int, error: BaseException) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


class Turn:
    """Items of one queue, and how far its handler has come with them."""

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

    def __init__(self, items: Sequence[Item], hold: Hold, clock: Clock) -> None:
        self.items = items
        self.done = 0
        self.committed = 0
        """How many of the items done a COMMIT covers, where commits are the handler's."""
        self.taken = 0
        """How many of the items done the other side has taken notice of."""
        self.stopped = False
        self.calling = False
        self.ends_ms = 0
        self._hold = hold
        self._clock = clock

    def begin(self) -> None:
        """A runner has come to it."""
        self.ends_ms = self._clock.monotonic_ms() + TURN_MS

    def next(self) -> Item | None:
        """The item to call the handler with now, or None at the turn's end."""
        self.calling = True
        done = self.done
        if not self.stopped and done < len(self.items):
            now_ms = self._clock.monotonic_ms()
            if (now_ms < self.ends_ms or done == 0) and self._hold.valid(now_ms):
                item = self.items[done]
                if not first_of(item).lease.window.dropped:
                    return item
        self.calling = False
        return None

    def judge(self, item: Item, result: object) -> None:
        """The handler returned; raises the failure that its result, or the message, asks for."""
        if self._is_acknowledged(item):
            self.done += 1
            return
        if result is not None:
            failure = failure_of(result)
            if failure is not None:
                raise failure
            if result is ConsumeOrderlyStatus.COMMIT:
                self.committed = self.done + 1
        self.done += 1

    def raised(self, item: Item) -> bool:
        """The handler raised; True when the item is finished all the same."""
        finished = self._is_acknowledged(item, raised=True)
        if finished:
            self.done += 1
        return finished

    def _is_acknowledged(self, item: Item, *, raised: bool = False) -> bool:
        """What the handler has said of its messages itself; raises the first failure it asked for.

        The first word of a message counts, whatever the handler returns or raises. What a handler
        that raised has not spoken of was not consumed.
        """
        asked = first_of(item).lease.asked
        if not asked:
            return False
        words = [asked.pop(message.offset, _UNSAID) for message in messages_of(item)]
        for index, word in enumerate(words):
            if isinstance(word, BaseException):
                if len(words) > 1:
                    raise OneRefused(index, word)
                raise word
            if raised and word is _UNSAID:
                return False
        return all(word is None for word in words)


class LoneTurn(Turn):
    """One item of no queue: somebody hands a consumer a message directly."""

    __slots__ = ()

    def next(self) -> Item | None:
        """The item, once."""
        return self.items[0] if self.done == 0 else None

    def _is_acknowledged(self, item: Item, *, raised: bool = False) -> bool:
        return False


def first_of(item: Item) -> ReceivedMessage:
    """The message, or the first one of a list."""
    message: ReceivedMessage = item[0] if type(item) is list else item
    return message


def messages_of(item: Item) -> list[ReceivedMessage]:
    """The messages of an item."""
    return item if type(item) is list else [item]


def plain_turns(handler: Callable[[Any], Any], log: ConsumeLog) -> Callable[[Turn], None]:
    """A plain function as the handler of turns."""

    def take(turn: Turn) -> None:
        turn.begin()
        while (item := turn.next()) is not None:
            try:
                begun_ms = log.begin(not turn.done & SELDOM)
                turn.judge(item, call_plain(handler, item))
                log.consumed(item, begun_ms)
            except Exception:  # no failure if the handler had acknowledged the item before
                if not turn.raised(item):
                    raise
            finally:
                turn.calling = False

    return take


def coroutine_turns(
    handler: Callable[[Any], Awaitable[Any]], log: ConsumeLog
) -> Callable[[Turn], Awaitable[None]]:
    """An `async def` as the handler of turns."""

    async def take(turn: Turn) -> None:
        turn.begin()
        while (item := turn.next()) is not None:
            try:
                begun_ms = log.begin(not turn.done & SELDOM)
                turn.judge(item, await handler(item))
                log.consumed(item, begun_ms)
            except Exception:  # no failure if the handler had acknowledged the item before
                if not turn.raised(item):
                    raise
            finally:
                turn.calling = False
            if turn.done % TURNS_PER_YIELD == 0:
                await asyncio.sleep(0)

    return take


class TurnLog(ConsumeLog):
    """What a runner of turns is given for its log: the turns themselves write the real one."""

    __slots__ = ("_real",)

    def __init__(self, real: ConsumeLog) -> None:
        self._real = real

    def begin(self, measured: bool = False) -> int:
        """A turn is not measured; what happens in it is."""
        return NOT_MEASURED

    def consumed(self, item: Item, begun_ms: int) -> None:
        """A turn has ended."""

    def collect(self) -> list[int]:
        """The times of the real log."""
        return self._real.collect()
