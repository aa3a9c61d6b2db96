"""The blocking API of a producer, for threads.

Any number of threads may send concurrently. Messages that are passed at the same time share frames.

A thread that sends alone does without the I/O thread: it sends on its own connection to the broker
and waits on the socket, because each switch between threads costs a wake-up, and a send that waits
for its reply needs two. So are sent a message, a batch, a half message, and the end of a
transaction. The I/O thread handles everything else: sends of several threads, which share frames;
sends that are not awaited; and each send that did not succeed at the first attempt, so that all
retries follow the same rules (kourou.client.producer.sender, kourou.client.transactions.ends).

Invariants:

- order: a message is sent directly only if the producer has nothing in flight on the I/O thread,
  and passed nothing to it within SHARED_MS; while a direct send is in flight, only other threads
  pass messages to the I/O thread
- each message gets one outcome: from the direct send if it was stored as requested, otherwise from
  the I/O thread; the same holds for the end of a transaction

State: soft.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from typing import Any, Generic, TypeVar, cast, overload

from kourou.client.client_core import ClientCore
from kourou.client.producer.batches import (
    PARTS_UNDER_WAY,
    as_messages,
    pending_batch,
    pending_many,
    results,
)
from kourou.client.producer.drafts import delay_property
from kourou.client.producer.pending_sends import (
    BatchResult,
    CallbackPort,
    Gathering,
    Outcome,
    PendingSend,
    Stored,
    ThreadPort,
)
from kourou.client.producer.producer_core import Choice, ProducerCore, TopicTargets
from kourou.client.producer.selectors import Selector
from kourou.client.producer.send_frames import SendFrame, records_of
from kourou.client.producer.sender import read_outcomes
from kourou.client.session.io_thread import ClientClosed
from kourou.client.transactions.ends import ATTEMPT_MS, PendingEnd, read_end
from kourou.errors import KourouError, Unavailable, UnknownOutcome
from kourou.model.limits import FRAME_RECORDS_MAX
from kourou.model.message import Message, SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou.protocol.request import Request
from kourou.protocol.wire.frames import Frame, encode_request
from kourou.transport.blocking_wire import BlockingWire

SHARED_MS = 1_000
"""After a message was passed to the I/O thread, all messages take that path for this long.

By then earlier messages have been sent, and threads that send concurrently keep sharing frames.
"""

DIAL_MS = 300
"""The limit for opening a connection; then the I/O thread sends, which waits longer."""

_log = logging.getLogger("kourou.client")


class DirectSends:
    """Direct sends of one producer; `is_possible` if it uses ZeroMQ in clear text and real time."""

    def __init__(self, core: ProducerCore, *, is_possible: bool) -> None:
        self._core = core
        self._sender = core.sender
        self._loop = core.io.loop
        self._clock = core.clock
        self._is_possible = is_possible
        self._lock = threading.Lock()
        self._wires: dict[str, BlockingWire] = {}
        self._correlations = count(1)
        self._shared_ms = core.clock.monotonic_ms() - SHARED_MS

    def shared(self) -> None:
        """Note that a message is passed to the I/O thread now."""
        self._shared_ms = self._clock.monotonic_ms()

    def send(self, send: PendingSend, waiter: Waiter[Any]) -> bool:
        """Send a message or a batch; its waiter receives the outcome.

        Returns False, with nothing sent, if the I/O thread must send it.
        """
        target, now_ms = send.target, self._clock.monotonic_ms()
        wire = self._taken(target.address, now_ms)
        if wire is None:
            return False
        frame = SendFrame(target.address, target.terms, 1, [target], [records_of([send])], [send])
        adopted = False

        def is_awaited() -> bool:
            """Pass the frame to the I/O thread: the leader may be frozen, another may take it."""
            nonlocal adopted
            if not adopted:
                adopted = True
                self._loop.call_soon_threadsafe(self._sender.adopt, frame, now_ms)
            return not waiter.is_settled

        try:
            request, body = self._sender.request(frame)
            until_ms = frame.deadline_ms
            answer = self._asked(wire, request, [body], now_ms, until_ms, is_awaited)
            if not adopted:
                stored = _stored(frame, answer)
                if stored is not None:
                    waiter.settle(stored)
                    return True
                self._loop.call_soon_threadsafe(self._sender.adopt, frame, now_ms)
            # Before `close` can continue, so that the sender knows of the frame when it is closed.
            self._loop.call_soon_threadsafe(self._sender.answered, frame, now_ms, answer)
        finally:
            self._lock.release()
        return True

    def end(self, end: PendingEnd) -> bool:
        """Send the end of a transaction to the broker; `end.settle` receives the result.

        Returns False, with nothing sent, if the I/O thread must send it.
        """
        ends, now_ms = self._core.ends, self._clock.monotonic_ms()
        wire = self._taken(ends.address_of(end), now_ms)
        if wire is None:
            return False
        answer: Frame | KourouError = UnknownOutcome("interrupted while waiting for the reply")
        try:
            until_ms = min(end.deadline_ms, now_ms + ATTEMPT_MS)
            answer = self._asked(wire, end.request, [], now_ms, until_ms, lambda: True)
        finally:
            if read_end(end, answer) is None:
                end.settle(None)
            else:  # also after Ctrl-C: the I/O thread continues to send it
                self._loop.call_soon_threadsafe(ends.adopt, end, answer)
            self._lock.release()
        return True

    def _taken(self, address: str, now_ms: int) -> BlockingWire | None:
        """Return the connection to a broker, with the lock held; None if not possible now."""
        if (
            not self._is_possible
            or now_ms - self._shared_ms < SHARED_MS
            or not address
            or not self._sender.may_be_bypassed
            or not self._lock.acquire(blocking=False)
        ):
            return None
        wire = None
        try:
            if self._is_possible:
                wire = self._wire(address)
        finally:
            if wire is None:
                self._lock.release()
        return wire

    def _asked(
        self,
        wire: BlockingWire,
        request: Request,
        body: Sequence[bytes],
        now_ms: int,
        until_ms: int,
        is_awaited: Callable[[], bool],
    ) -> Frame | KourouError:
        """Return the reply to a request, or the error; after an error the connection is closed."""
        correlation = next(self._correlations)
        head = encode_request(request, correlation=correlation, deadline_ms=until_ms - now_ms)
        answer: Frame | KourouError | None = None
        try:
            answer = wire.ask([head, *body], correlation, until_ms, is_awaited)
        except KourouError as error:
            answer = error
        finally:
            if not isinstance(answer, Frame):  # also after Ctrl-C
                del self._wires[wire.address]
                wire.close()
        return UnknownOutcome(f"{wire.address} did not answer") if answer is None else answer

    def _wire(self, address: str) -> BlockingWire | None:
        """Return a fresh connection to a broker, or None if it cannot be opened."""
        wire = self._wires.get(address)
        if wire is not None and wire.is_fresh:
            return wire
        for stale in [one for one in self._wires.values() if one is wire or not one.is_fresh]:
            del self._wires[stale.address]
            stale.close()
        try:
            wire = self._wires[address] = BlockingWire(address, DIAL_MS)
        except Unavailable:
            return None
        return wire

    def close(self) -> None:
        """Wait for the send in flight, and close the connections.

        Does nothing in a forked child, because another thread may have held the lock.
        """
        if self._core.io.orphaned:
            return
        with self._lock:
            self._is_possible = False
            for wire in self._wires.values():
                wire.close()
            self._wires.clear()


def _stored(frame: SendFrame, answer: Frame | KourouError) -> Stored | None:
    """Return the outcome if the frame's send is stored as requested."""
    if isinstance(answer, KourouError) or frame.targets[0].borrowed:
        return None
    [outcome] = read_outcomes(frame, answer)
    if isinstance(outcome, KourouError) or outcome.status is not SendStatus.SEND_OK:
        return None
    return outcome


StoredT = TypeVar("StoredT", SendResult, BatchResult)


class Waiter(Generic[StoredT]):
    """Lets one thread wait for the outcome of a message or a batch."""

    __slots__ = ("_done", "_outcome")

    def __init__(self) -> None:
        self._outcome: Outcome | None = None
        self._done = threading.Lock()
        self._done.acquire()

    @property
    def is_settled(self) -> bool:
        """Return whether the outcome is known."""
        return self._outcome is not None

    def settle(self, outcome: Outcome) -> None:
        """Set the outcome and wake the waiting thread; called on the I/O thread."""
        self._outcome = outcome
        self._done.release()

    def wait(self) -> StoredT:
        """Wait for the outcome. It always arrives, because every send ends by its deadline."""
        self._done.acquire()
        outcome = self._outcome
        if isinstance(outcome, KourouError):
            raise outcome
        assert outcome is not None, "settled without an outcome"
        return cast("StoredT", outcome)


class _ManyWaiter:
    """Lets one thread wait for several outcomes."""

    __slots__ = ("_complete", "_outcomes")

    def __init__(self) -> None:
        self._complete = threading.Event()
        self._outcomes: list[Outcome] = []

    def gathering(self, count: int) -> Gathering:
        """Return a collector of `count` outcomes that wakes this waiter."""
        return Gathering(count, self._settle)

    def _settle(self, outcomes: list[Outcome]) -> None:
        self._outcomes = outcomes
        self._complete.set()

    def wait(self) -> list[Outcome]:
        """Wait for all outcomes. They always arrive, because every send ends by its deadline."""
        self._complete.wait()
        return self._outcomes


class _Callback:
    """Passes one outcome to a function, in the callback thread pool."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[Outcome], Any]) -> None:
        self._function = function

    def settle(self, outcome: Outcome) -> None:
        """Call the function; an exception that it raises is logged."""
        try:
            self._function(outcome)
        except BaseException:  # noqa: BLE001 - an application's callback may raise anything
            # Includes `sys.exit()`: the callbacks of later outcomes must still run.
            _log.exception("send-callback-failed: send callback failed")


class BlockingSends:
    """Sending from threads. `Client` and `Producer` of kourou.sync have these methods."""

    def __init__(self) -> None:
        self._core: ProducerCore | None = None
        self._port: ThreadPort | None = None
        self._callbacks: CallbackPort | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._direct: DirectSends | None = None

    def _begin(self, core: ProducerCore, client: ClientCore) -> None:
        threads, count_max = client.settings.callback_threads, core.settings.pending_count_max
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kourou-callback")
        direct = self._direct = DirectSends(core, is_possible=client.dials_in_clear)
        self._port = ThreadPort(core.outgoing, direct.shared)
        self._callbacks = CallbackPort(core.outgoing, self._pool, count_max, direct.shared)
        self._core = core

    def _end(self) -> ProducerCore | None:
        core, self._core = self._core, None
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.close()
        return core

    def _shut_pool(self) -> None:
        """Run the pending callbacks; called when every outcome has arrived."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _ready(self, topic: str) -> tuple[ProducerCore, ThreadPort, TopicTargets]:
        core, port = self._core, self._port
        if core is None or port is None:
            raise ClientClosed
        core.io.check()
        targets = core.known(topic)
        if targets is None:
            targets = core.io.submit(core.find(topic)).result()
        return core, port, targets

    def send(
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
    ) -> SendResult:
        """Send one message and wait until the broker acknowledges it; see `kourou.Client.send`."""
        core, port, targets = self._ready(topic)
        own = None
        if delay_level or delay is not None:
            own = delay_property(core.settings.delay_levels_ms, delay_level, delay)
        choice = Choice(order_key, queue, selector, argument)
        terms = core.terms(timeout_ms=timeout_ms, wait=wait_store_ok, pinned=choice.pinned)
        waiter: Waiter[SendResult] = Waiter()
        pending_send = core.pending_send(
            targets, port, waiter, body, tag, keys, properties, flag, terms, choice, own
        )
        self._send_waiting(port, pending_send, waiter)
        return waiter.wait()

    def _send_waiting(self, port: ThreadPort, send: PendingSend, waiter: Waiter[Any]) -> None:
        """Send a message or a batch; this thread will wait for its outcome."""
        direct = self._direct
        if direct is None or not direct.send(send, waiter):
            port.add_all([send])

    def send_async(
        self,
        topic: str,
        body: Any,
        callback: Callable[[Outcome], Any],
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
    ) -> None:
        """Send one message; `callback` receives its SendResult or its error, in a thread pool.

        Blocks only while too many callbacks are pending.
        """
        core, _, targets = self._ready(topic)
        port = self._callbacks
        assert port is not None, "opened together with the core"
        choice = Choice(order_key, queue, selector, argument)
        terms = core.terms(timeout_ms=timeout_ms, wait=wait_store_ok, pinned=choice.pinned)
        waiter = _Callback(callback)
        own = None
        if delay_level or delay is not None:
            own = delay_property(core.settings.delay_levels_ms, delay_level, delay)
        port.add(
            core.pending_send(
                targets, port, waiter, body, tag, keys, properties, flag, terms, choice, own
            )
        )

    def send_oneway(
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
        core, port, targets = self._ready(topic)
        choice = Choice(order_key, queue)
        terms = core.terms(timeout_ms=None, wait=True, oneway=True, pinned=choice.pinned)
        own = None
        if delay_level or delay is not None:
            own = delay_property(core.settings.delay_levels_ms, delay_level, delay)
        pending_send = core.pending_send(
            targets, port, None, body, tag, keys, properties, flag, terms, choice, own
        )
        port.add_all([pending_send])

    @overload
    def send_many(
        self, messages: Iterable[Message], /, *, timeout_ms: int | None = None
    ) -> list[SendResult]: ...

    @overload
    def send_many(
        self,
        topic: str,
        bodies: Iterable[Any],
        /,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[SendResult]: ...

    def send_many(
        self,
        first: str | Iterable[Message],
        bodies: Iterable[Any] | None = None,
        /,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send several messages of any topics; see `kourou.Client.send_many`."""
        messages = as_messages(first, bodies, tag, keys)
        outcomes: list[Outcome] = []
        under_way: deque[_ManyWaiter] = deque()
        for at in range(0, len(messages), FRAME_RECORDS_MAX):
            part = messages[at : at + FRAME_RECORDS_MAX]
            targets = {}
            for topic in dict.fromkeys(message.topic for message in part):
                core, port, targets[topic] = self._ready(topic)
            waiter = _ManyWaiter()
            port.add_all(pending_many(core, port, targets, part, timeout_ms, waiter.gathering))
            under_way.append(waiter)
            if len(under_way) == PARTS_UNDER_WAY:
                outcomes += under_way.popleft().wait()
        for waiter in under_way:
            outcomes += waiter.wait()
        return results(outcomes)

    def send_batch(
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
    ) -> list[SendResult]:
        """Send messages of one topic as one batch, all or none; see `kourou.Client.send_batch`."""
        messages = as_messages(topic, bodies, tag, keys)
        if not messages:
            return []
        core, port, targets = self._ready(topic)
        waiter: Waiter[BatchResult] = Waiter()
        choice = Choice(order_key, queue, selector, argument)
        batch = pending_batch(core, port, targets, messages, choice, timeout_ms, waiter)
        self._send_waiting(port, batch, waiter)
        return waiter.wait().results
