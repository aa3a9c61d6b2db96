"""Messages on their way to the loop that sends them, and their outcomes on the way back.

Coalescing: all sends that become ready in one turn of an event loop cross together, and so travel
together. A first send while nothing of its loop is under way crosses at once, so a single send in
flight waits for no turn. Outcomes of one reply come back with one wakeup per loop.

State: soft. What is here when the process dies was never acknowledged.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from kourou.client.drafts import Place
from kourou.client.handover import Handover
from kourou.errors import KourouError
from kourou.model.message import SendResult
from kourou.model.queue import MessageQueue

if TYPE_CHECKING:
    from kourou.telemetry.tracing import TracedSpan

Outcome: TypeAlias = SendResult | KourouError
Outcomes: TypeAlias = "list[tuple[Any, Outcome | None, int]]"
"""(waiter, outcome, size in bytes of the draft) of messages that crossed by one port.

A oneway message has no outcome (None) and no waiter."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What messages must have in common to share a frame. Compared by identity.

    `attempts` is how often a message may be tried in all, not counting attempts that nobody was
    there to take. `pinned` messages keep their queue: they are tried again only where it had no
    leader, or the connection was lost. `batch` frames are never mixed with others. `repeated`
    messages may have been sent before, by whomever: the broker looks at the first attempt already.
    """

    timeout_ms: int
    attempts: int
    wait: bool = True
    oneway: bool = False
    pinned: bool = False
    batch: bool = False
    repeated: bool = False


class Lane:
    """A queue at an address under some terms; unsent messages gather in `bucket` for one frame.

    `host_text` is the broker's part of offset message ids.
    """

    __slots__ = (
        "address",
        "borrowed",
        "broker_name",
        "bucket",
        "host_text",
        "place",
        "queue",
        "terms",
    )

    def __init__(
        self,
        queue: MessageQueue,
        address: str,
        place: Place,
        terms: Terms,
        *,
        host_text: str = "",
        borrowed: bool = False,
    ) -> None:
        self.queue = queue
        self.broker_name = queue.broker_name
        self.address = address
        self.place = place
        self.terms = terms
        self.host_text = host_text
        self.borrowed = borrowed
        self.bucket: list[Unsent] = []

    def under(self, terms: Terms) -> Lane:
        """A lane to the same place under other terms."""
        return Lane(
            self.queue,
            self.address,
            self.place,
            terms,
            host_text=self.host_text,
            borrowed=self.borrowed,
        )


class Unsent(msgspec.Struct, eq=False):
    """One message until its outcome is known.

    `stored` is set when a broker has it without the promise asked for, and it is sent once more.
    `span` is there if its sending is traced. `failure` is why an attempt failed: the last one, or
    the first after which it may be stored.
    """

    draft: bytes
    unique_key: str
    lane: Lane
    port: Port
    waiter: Any
    deadline_ms: int
    keys: str = ""
    stored: SendResult | None = None
    span: TracedSpan | None = None
    failure: KourouError | None = None


class Port(Protocol):
    """Where outcomes go back to; `deliver` is called on the I/O thread."""

    def deliver(self, outcomes: Outcomes) -> None:
        """Take the outcomes of some of the messages that crossed by this port."""
        ...


PART_MIN = 32
"""Where nothing crosses threads, half of the messages that were under way leave together before the
turn is over, but no fewer: the broker handles one half while this loop prepares the other."""

SLOW_MS = 2
"""A broker that takes longer waits for its disk or its replicas, and waits once for all of a frame:
then a turn's messages leave together."""


class LoopPort:
    """Crossing for one event loop of the application.

    All methods but `deliver` are called on that loop; if it is the I/O loop, nothing has to cross
    (`here`), and `send` takes a turn's messages at once. `round_trip_ms` says how long the last
    reply took. When more than the given numbers of messages or bytes wait for their outcome, `full`
    is True and a sender awaits `room` first.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[list[Unsent]], object],
        *,
        here: bool,
        round_trip_ms: Callable[[], int] = int,
        count_max: int,
        size_bytes_max: int,
    ) -> None:
        self.loop = loop
        self.here = here
        self._send = send
        self._round_trip_ms = round_trip_ms
        self._count_max = count_max
        self._size_max = size_bytes_max
        self._turn: list[Unsent] = []
        self._width = 0
        """How many were under way when the last outcomes came."""

        self._part = PART_MIN if here else 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._let_in = 0
        self.count = 0
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        """Must a sender wait? Newcomers stand behind those who wait already."""
        return bool(self._waiting) or self._free() <= 0

    def _free(self) -> int:
        """How many more senders may be let in; near the limit of bytes one at a time."""
        if self.size_bytes >= self._size_max:
            return 0
        if self.size_bytes * 2 >= self._size_max:
            return 1 - self._let_in
        return self._count_max - self.count - self._let_in

    async def room(self) -> None:
        """Wait until a sender may go on; senders go on in the order they came."""
        if not self.full:
            return
        waiter = self.loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter.done() and not waiter.cancelled():
                self._let_in -= 1
                # Whoever was cancelled after it was let in leaves its room to the next.
                self.loop.call_soon(self._wake)

    def add(self, message: Unsent) -> None:
        """Send this message with the others of this turn."""
        self.size_bytes += len(message.draft)
        self.count += 1
        turn = self._turn
        turn.append(message)
        if len(turn) == 1:
            if self.count == 1 and self._width <= 1:
                self.cross()
            else:
                self.loop.call_soon(self.cross)
        elif len(turn) == self._part:
            self.cross()

    def add_all(self, messages: list[Unsent]) -> None:
        """Send these messages with the others of this turn."""
        if not messages:
            return
        self.size_bytes += sum(len(message.draft) for message in messages)
        self.count += len(messages)
        if not self._turn:
            self.loop.call_soon(self.cross)
        self._turn.extend(messages)

    def cross(self) -> None:
        """Let what this turn has gathered cross now."""
        if self._turn:
            turn, self._turn = self._turn, []
            self._send(turn)

    def deliver(self, outcomes: Outcomes) -> None:
        """Bring outcomes to the loop; if it is closed, nobody waits for them any more."""
        if self.here:
            self._settle(outcomes)
            return
        try:
            self.loop.call_soon_threadsafe(self._settle, outcomes)
        except RuntimeError:
            self.count = self.size_bytes = 0

    def _settle(self, outcomes: Outcomes) -> None:
        self._width = self.count
        if self.here:
            slow = self._round_trip_ms() > SLOW_MS
            self._part = 0 if slow else max(PART_MIN, self._width // 2)
        settled_bytes = 0
        for waiter, outcome, size in outcomes:
            settled_bytes += size
            if waiter is None:
                continue
            if not isinstance(waiter, asyncio.Future):
                waiter.settle(outcome)
            elif waiter.done():
                continue  # whoever sent it stopped waiting
            elif isinstance(outcome, SendResult):
                waiter.set_result(outcome)
            else:
                waiter.set_exception(outcome or KourouError("a oneway send has no outcome"))
        self.count -= len(outcomes)
        self.size_bytes -= settled_bytes
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        while self._waiting and self._free() > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._let_in += 1
                waiter.set_result(None)


class ThreadPort:
    """Crossing for threads that wait, or do not care; callable from any thread."""

    def __init__(
        self, outgoing: Handover[list[Unsent]], on_use: Callable[[], None] = lambda: None
    ) -> None:
        self._outgoing = outgoing
        self._on_use = on_use

    def add_all(self, messages: list[Unsent]) -> None:
        """Send these messages; what other threads send meanwhile travels with them."""
        self._on_use()
        self._outgoing.put(messages)

    def deliver(self, outcomes: Outcomes) -> None:
        """Settle each waiter on the I/O thread; waiters only note the outcome and wake a thread."""
        for waiter, outcome, _ in outcomes:
            if waiter is not None:
                waiter.settle(outcome)


class CallbackPort:
    """Crossing for sends with a callback; callbacks run in a small pool (F165, F286)."""

    def __init__(
        self,
        outgoing: Handover[list[Unsent]],
        pool: Executor,
        count_max: int,
        on_use: Callable[[], None] = lambda: None,
    ) -> None:
        self._outgoing = outgoing
        self._on_use = on_use
        self._pool = pool
        self._room = threading.BoundedSemaphore(count_max)

    def add(self, message: Unsent) -> None:
        """Send this message; blocks while too many callbacks are still owed."""
        self._room.acquire()
        self._on_use()
        self._outgoing.put([message])

    def deliver(self, outcomes: Outcomes) -> None:
        """Run the callbacks of these outcomes in the pool, in their order."""
        self._pool.submit(self._call_back, outcomes)

    def _call_back(self, outcomes: Outcomes) -> None:
        for waiter, outcome, _ in outcomes:
            waiter.settle(outcome)
            self._room.release()


class Gathering:
    """Waits for several messages; calls `complete` once with their outcomes in order."""

    __slots__ = ("_complete", "_left", "outcomes")

    def __init__(self, count: int, complete: Callable[[list[Outcome]], None]) -> None:
        self.outcomes: list[Outcome] = [_MISSING] * count
        self._left = count
        self._complete = complete

    def settle_at(self, index: int, outcome: Outcome) -> None:
        """The outcome of one of them; always called by the same thread."""
        self.outcomes[index] = outcome
        self._left -= 1
        if not self._left:
            self._complete(self.outcomes)


class Slot(msgspec.Struct, eq=False):
    """One place of a gathering."""

    gathering: Gathering
    index: int

    def settle(self, outcome: Outcome) -> None:
        """The outcome is known."""
        self.gathering.settle_at(self.index, outcome)


_MISSING = KourouError("no outcome yet")
