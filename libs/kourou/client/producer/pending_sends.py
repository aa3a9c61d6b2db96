"""Messages on their way to the loop that sends them, and the way back of their outcomes.

Coalescing: all sends that become ready in one iteration of an event loop are passed on together,
and so share frames. The first send while nothing of its loop is in flight is passed on immediately,
so a single send does not wait for the end of the iteration. The outcomes in one reply cause one
wakeup per loop.

State: soft. Messages that are here when the process dies were never acknowledged.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from kourou.client.producer.drafts import DraftDestination, moved_to_queue
from kourou.client.session.io_thread import ThreadQueue
from kourou.errors import KourouError
from kourou.model.message import SendResult, SendStatus
from kourou.model.topic import MessageQueue

if TYPE_CHECKING:
    from kourou.telemetry.tracing import TracedSpan


class BatchResult(msgspec.Struct, frozen=True):
    """The results of a stored batch, one per message, in order; all have the same status."""

    results: list[SendResult]

    @property
    def status(self) -> SendStatus:
        """The status of every message."""
        return self.results[0].status


Stored: TypeAlias = SendResult | BatchResult
Outcome: TypeAlias = SendResult | BatchResult | KourouError
Outcomes: TypeAlias = "list[tuple[PendingSend, Outcome | None]]"
"""Sends with their outcomes. A one-way send has no outcome (None) and no waiter."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The properties that messages in one frame must share. Compared by identity.

    `attempts` is the maximum number of attempts; attempts without an available leader do not count.
    `pinned` messages keep their queue: they are retried only if it had no leader, or if the
    connection was lost. `batch` frames are never mixed with others. `repeated` messages may have
    been sent before, perhaps by another process: the broker deduplicates their first attempt too.
    """

    timeout_ms: int
    attempts: int
    wait: bool = True
    oneway: bool = False
    pinned: bool = False
    batch: bool = False
    repeated: bool = False


class SendTarget:
    """A queue at an address with given terms; unsent messages are collected in `bucket` per frame.

    `host_text` is the broker's part of offset message IDs.
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
        place: DraftDestination,
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
        self.bucket: list[PendingSend] = []

    def under(self, terms: Terms) -> SendTarget:
        """Return a target to the same queue and address with other terms."""
        return SendTarget(
            self.queue,
            self.address,
            self.place,
            terms,
            host_text=self.host_text,
            borrowed=self.borrowed,
        )


class PendingSend(msgspec.Struct, eq=False):
    """One message, or a batch (PendingBatch), until its outcome is known.

    `stored` is set if a broker stored it without the requested durability, and it is sent again.
    `span` is set if its sending is traced. `failure` is the error of an attempt: the last one, or
    the first one after which it may be stored.
    """

    draft: bytes
    unique_key: str
    target: SendTarget
    port: Port
    waiter: Any
    deadline_ms: int
    keys: str = ""
    stored: Stored | None = None
    span: TracedSpan | None = None
    failure: KourouError | None = None

    def move(self, target: SendTarget) -> None:
        """Assign it to this target of its topic."""
        if self.target.queue.queue_id != target.queue.queue_id:
            self.draft = self._in_queue(target.queue.queue_id)
        self.target = target

    def messages(self) -> list[PendingSend]:
        """Return its messages, as they would be sent one by one."""
        return [self]

    def _in_queue(self, queue_id: int) -> bytes:
        return moved_to_queue(self.draft, queue_id)


class PendingBatch(PendingSend, eq=False, kw_only=True):
    """A batch: `draft` has its adjacent drafts, of `sizes` bytes; it has one outcome.

    `unique_keys`, `all_keys` and `spans` are those of its messages; the fields of PendingSend for
    these are the first message's.
    """

    sizes: list[int]
    unique_keys: Sequence[str]
    all_keys: list[str]
    spans: list[TracedSpan | None]

    def _in_queue(self, queue_id: int) -> bytes:
        return b"".join(moved_to_queue(one.draft, queue_id) for one in self.messages())

    def messages(self) -> list[PendingSend]:
        """Return its messages, as they would be sent one by one."""
        sends: list[PendingSend] = []
        at = 0
        for size, unique_key, keys, span in zip(
            self.sizes, self.unique_keys, self.all_keys, self.spans, strict=True
        ):
            draft = self.draft[at : at + size]
            at += size
            sends.append(
                PendingSend(
                    draft,
                    unique_key,
                    self.target,
                    self.port,
                    None,
                    self.deadline_ms,
                    keys,
                    None,
                    span,
                )
            )
        return sends


def message_outcomes(outcomes: Outcomes) -> Outcomes:
    """Return the outcome of each message separately, also those of batches."""
    found: Outcomes = []
    for send, outcome in outcomes:
        each = outcome.results if isinstance(outcome, BatchResult) else repeat(outcome)
        found += zip(send.messages(), each, strict=False)
    return found


_draft_of = attrgetter("draft")


def draft_bytes(sends: Iterable[PendingSend]) -> int:
    """Return the size of their drafts together."""
    return sum(map(len, map(_draft_of, sends)))


def first_error(outcomes: Iterable[Outcome]) -> KourouError | None:
    """Return the first outcome that is no result; None if all messages are stored."""
    for outcome in outcomes:
        if type(outcome) is not SendResult and isinstance(outcome, KourouError):
            return outcome
    return None


class Port(Protocol):
    """Receives the outcomes; `deliver` is called on the I/O thread."""

    def deliver(self, outcomes: Outcomes) -> None:
        """Deliver the outcomes of some of the messages that were sent through this port."""
        ...


PART_MIN = 32
"""Without a thread switch, half of the messages in flight are sent before the iteration ends.

At least this number are sent. The broker processes one half while this loop prepares the other.
"""

SLOW_MS = 2
"""A broker with a longer round trip waits for its disk or replicas, once for a whole frame.

Then all messages of an iteration are sent together.
"""


class LoopPort:
    """The path of messages from one event loop of the application.

    All methods except `deliver` are called on that loop. If it is the I/O loop, no thread switch is
    needed (`here`), and `send` accepts the messages directly. `round_trip_ms` returns how long the
    last reply took. If more than the given number of sends (a batch is one) or bytes wait for their
    outcomes, `full` is True and a sender awaits `room` first.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[list[PendingSend]], object],
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
        self._turn: list[PendingSend] = []
        self._width = 0
        """The number of messages in flight when the last outcomes arrived."""

        self._part = PART_MIN if here else 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._let_in = 0
        self.count = 0
        self.size_bytes = 0
        self.full = False
        """Whether a sender must wait; new senders queue behind those that wait already."""

    def _update_full(self) -> None:
        self.full = bool(self._waiting) or self._free() <= 0

    def _free(self) -> int:
        """Return how many senders may continue; one at a time near the limit of bytes."""
        if self.size_bytes >= self._size_max:
            return 0
        if self.size_bytes * 2 >= self._size_max:
            return 1 - self._let_in
        return self._count_max - self.count - self._let_in

    async def room(self) -> None:
        """Wait until a sender may continue; senders continue in order of arrival."""
        if not self.full:
            return
        waiter = self.loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter.done() and not waiter.cancelled():
                self._let_in -= 1
                self._update_full()
                # A sender that was cancelled after it was let in passes its room to the next.
                self.loop.call_soon(self._wake)

    def add(self, message: PendingSend) -> None:
        """Send this message with the others of this iteration."""
        self.size_bytes += len(message.draft)
        self.count += 1
        if self.count + self._let_in >= self._count_max or self.size_bytes * 2 >= self._size_max:
            self._update_full()
        turn = self._turn
        turn.append(message)
        if len(turn) == 1:
            if self.count == 1 and self._width <= 1:
                self.cross()
            else:
                self.loop.call_soon(self.cross)
        elif len(turn) == self._part:
            self.cross()

    def add_batch(self, batch: PendingBatch) -> None:
        """Send this batch now, after what was collected in this iteration; it has its own frame."""
        self.size_bytes += len(batch.draft)
        self.count += 1
        self._update_full()
        self._turn.append(batch)
        self.cross()

    def add_all(self, messages: list[PendingSend]) -> None:
        """Send these messages with the others of this iteration."""
        if not messages:
            return
        self.size_bytes += draft_bytes(messages)
        self.count += len(messages)
        self._update_full()
        if not self._turn:
            self.loop.call_soon(self.cross)
        self._turn.extend(messages)

    def cross(self) -> None:
        """Send the messages that were collected in this iteration now."""
        if self._turn:
            turn, self._turn = self._turn, []
            self._send(turn)

    def deliver(self, outcomes: Outcomes) -> None:
        """Deliver outcomes to the loop; they are dropped if it is closed."""
        if self.here:
            self._settle(outcomes)
            return
        try:
            self.loop.call_soon_threadsafe(self._settle, outcomes)
        except RuntimeError:
            self.count = self.size_bytes = 0
            self._update_full()

    def _settle(self, outcomes: Outcomes) -> None:
        self._width = self.count
        if self.here:
            slow = self._round_trip_ms() > SLOW_MS
            self._part = 0 if slow else max(PART_MIN, self._width // 2)
        settled_bytes = 0
        for send, outcome in outcomes:
            settled_bytes += len(send.draft)
            waiter = send.waiter
            if waiter is None:
                continue
            if not isinstance(waiter, asyncio.Future):
                waiter.settle(outcome)
            elif waiter.done():
                continue  # the sender stopped waiting
            elif isinstance(outcome, KourouError):
                waiter.set_exception(outcome)
            else:
                waiter.set_result(outcome)
        self.count -= len(outcomes)
        self.size_bytes -= settled_bytes
        if self.full:
            self._wake()

    def _wake(self) -> None:
        while self._waiting and self._free() > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._let_in += 1
                waiter.set_result(None)
        self._update_full()


class ThreadPort:
    """The path of messages from threads; callable from any thread."""

    def __init__(
        self, outgoing: ThreadQueue[list[PendingSend]], on_use: Callable[[], None] = lambda: None
    ) -> None:
        self._outgoing = outgoing
        self._on_use = on_use

    def add_all(self, messages: list[PendingSend]) -> None:
        """Send these messages; those of other threads at the same time share their frames."""
        self._on_use()
        self._outgoing.put(messages)

    def deliver(self, outcomes: Outcomes) -> None:
        """Complete each waiter on the I/O thread: it stores the outcome and wakes its thread."""
        for send, outcome in outcomes:
            if send.waiter is not None:
                send.waiter.settle(outcome)


class CallbackPort:
    """The path of sends with a callback; callbacks run in a small thread pool."""

    def __init__(
        self,
        outgoing: ThreadQueue[list[PendingSend]],
        pool: Executor,
        count_max: int,
        on_use: Callable[[], None] = lambda: None,
    ) -> None:
        self._outgoing = outgoing
        self._on_use = on_use
        self._pool = pool
        self._room = threading.BoundedSemaphore(count_max)

    def add(self, message: PendingSend) -> None:
        """Send this message; blocks while too many callbacks are pending."""
        self._room.acquire()
        self._on_use()
        self._outgoing.put([message])

    def deliver(self, outcomes: Outcomes) -> None:
        """Run the callbacks of these outcomes in the pool, in order."""
        self._pool.submit(self._call_back, outcomes)

    def _call_back(self, outcomes: Outcomes) -> None:
        for send, outcome in outcomes:
            send.waiter.settle(outcome)
            self._room.release()


class Gathering:
    """Collects several outcomes; calls `complete` once with all of them in order.

    `left`: how many are missing.
    """

    __slots__ = ("complete", "left", "outcomes")

    def __init__(self, count: int, complete: Callable[[list[Outcome]], None]) -> None:
        self.outcomes: list[Outcome] = [_MISSING] * count
        self.left = count
        self.complete = complete


class Slot(msgspec.Struct, eq=False):
    """One element of a gathering."""

    gathering: Gathering
    index: int

    def settle(self, outcome: Outcome) -> None:
        """Store the outcome; always called by the same thread."""
        gathering = self.gathering
        gathering.outcomes[self.index] = outcome
        gathering.left -= 1
        if not gathering.left:
            gathering.complete(gathering.outcomes)


_MISSING = KourouError("no outcome yet")
