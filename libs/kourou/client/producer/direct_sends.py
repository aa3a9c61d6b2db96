"""Blocking sends without the I/O thread: the caller's thread sends, and waits on the socket.

Each switch between threads costs a wake-up, and a send that waits for its reply needs two. So a
thread that sends alone uses its own connection to the broker: for a message, a batch, a half
message, and the end of a transaction. The I/O thread handles everything else: sends of several
threads, which share frames; sends that are not awaited; and each send that did not succeed at the
first attempt, so that all retries follow the same rules (kourou.client.producer.sender,
kourou.client.transactions.ends).

Invariants:

- order: a message is sent directly only if the producer has nothing in flight on the I/O thread,
  and passed nothing to it within SHARED_MS; while a direct send is in flight, only other threads
  pass messages to the I/O thread
- each message gets one outcome: here if it was stored as requested, otherwise from the I/O thread;
  the same holds for the end of a transaction

State: soft.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from kourou.client.producer.pending_sends import PendingSend
from kourou.client.producer.producer_core import ProducerCore
from kourou.client.producer.send_frames import SendFrame
from kourou.client.producer.sender import read_outcomes
from kourou.client.transactions.ends import ATTEMPT_MS, End, read_end
from kourou.errors import KourouError, Unavailable, UnknownOutcome
from kourou.model.message import SendResult, SendStatus
from kourou.protocol.request import Request
from kourou.protocol.wire.frames import Frame, encode_request
from kourou.transport.blocking_wire import BlockingWire

SHARED_MS = 1_000
"""After a message was passed to the I/O thread, all messages take that path for this long.

By then earlier messages have been sent, and threads that send concurrently keep sharing frames.
"""

DIAL_MS = 300
"""The limit for opening a connection; then the I/O thread sends, which waits longer."""


class Waiting(Protocol):
    """A thread that waits for the outcomes of its sends."""

    @property
    def is_settled(self) -> bool:
        """Return whether the outcomes are known."""
        ...


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

    def send(self, messages: list[PendingSend], waiting: Waiting) -> bool:
        """Send messages to one queue in one frame; their waiters receive the outcomes.

        Returns False, with nothing sent, if the I/O thread must send them.
        """
        target, now_ms = messages[0].target, self._clock.monotonic_ms()
        wire = self._taken(target.address, now_ms)
        if wire is None:
            return False
        frame = SendFrame(target.address, target.terms, 1, [target], [len(messages)], messages)
        adopted = False

        def is_awaited() -> bool:
            """Pass the frame to the I/O thread: the leader may be frozen, another may take it."""
            nonlocal adopted
            if not adopted:
                adopted = True
                self._loop.call_soon_threadsafe(self._sender.adopt, frame, now_ms)
            return not waiting.is_settled

        try:
            request, body = self._sender.request(frame)
            until_ms = frame.deadline_ms
            answer = self._asked(wire, request, [body], now_ms, until_ms, is_awaited)
            if not adopted:
                results = _stored(frame, answer)
                if results:
                    for message, result in zip(messages, results, strict=True):
                        message.waiter.settle(result)
                    return True
                self._loop.call_soon_threadsafe(self._sender.adopt, frame, now_ms)
            # Before `close` can continue, so that the sender knows of the frame when it is closed.
            self._loop.call_soon_threadsafe(self._sender.answered, frame, now_ms, answer)
        finally:
            self._lock.release()
        return True

    def end(self, end: End) -> bool:
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


def _stored(frame: SendFrame, answer: Frame | KourouError) -> list[SendResult]:
    """Return the results if all messages are stored as requested; otherwise an empty list."""
    if isinstance(answer, KourouError) or frame.targets[0].borrowed:
        return []
    results = []
    for outcome in read_outcomes(frame, answer):
        if not isinstance(outcome, SendResult) or outcome.status is not SendStatus.SEND_OK:
            return []
        results.append(outcome)
    return results
