"""Blocking sends without the I/O thread: the caller's thread sends, and waits on the socket.

Each crossing of threads costs a wake-up, and a send that waits for its reply needs two of them. So
a thread that sends alone has a connection to the broker of its own: for a message, a batch, a half
message, and the end of a transaction. All else goes by the I/O thread: sends of several threads,
which share frames; whatever is sent without waiting; and each send that meets anything but success,
whose retries are the same for all (kourou.client.send_desk, kourou.client.transaction_ends).

Invariants:
- order: a message leaves here only if the producer has nothing under way on the I/O thread, and
  handed nothing to it within SHARED_MS; while one is under way here, only other threads hand over
- a message is judged once: here if it was stored as promised, else by the send desk; likewise an
  end, if the broker has taken it

State: soft.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from kourou.client.outbox import Unsent
from kourou.client.producer import ProducerCore
from kourou.client.send_desk import read_outcomes
from kourou.client.send_frames import SendFrame
from kourou.client.transaction_ends import ATTEMPT_MS, End, read_end
from kourou.errors import KourouError, Unavailable, UnknownOutcome
from kourou.model.message import SendResult, SendStatus
from kourou.protocol.frames import Frame, encode_request
from kourou.protocol.request import Request
from kourou.transport.blocking_wire import BlockingWire

SHARED_MS = 1_000
"""So long after something was handed to the I/O thread all goes that way: what left there one way
has arrived by then, and threads that send at once go on sharing frames."""

DIAL_MS = 300
"""So long a connection may take: without one the other way, which has more patience, is open."""


class Waiting(Protocol):
    """A thread that waits for the outcomes of what it sent."""

    @property
    def is_settled(self) -> bool:
        """Are they known?"""
        ...


class DirectSends:
    """The direct way of one producer; `is_possible` if it speaks in clear text and real time."""

    def __init__(self, core: ProducerCore, *, is_possible: bool) -> None:
        self._core = core
        self._desk = core.desk
        self._loop = core.io.loop
        self._clock = core.clock
        self._is_possible = is_possible
        self._lock = threading.Lock()
        self._wires: dict[str, BlockingWire] = {}
        self._correlations = count(1)
        self._shared_ms = core.clock.monotonic_ms() - SHARED_MS

    def shared(self) -> None:
        """Something is handed to the I/O thread now."""
        self._shared_ms = self._clock.monotonic_ms()

    def send(self, messages: list[Unsent], waiting: Waiting) -> bool:
        """Send messages of one lane, which fit into one frame; their waiters get the outcomes.

        False if they have to go the other way, and did not leave.
        """
        lane, now_ms = messages[0].lane, self._clock.monotonic_ms()
        wire = self._taken(lane.address, now_ms)
        if wire is None:
            return False
        frame = SendFrame(lane.address, lane.terms, 1, [lane], [len(messages)], messages)
        adopted = False

        def is_awaited() -> bool:
            """A leader may be frozen: the desk looks, and may send it to another one."""
            nonlocal adopted
            if not adopted:
                adopted = True
                self._loop.call_soon_threadsafe(self._desk.adopt, frame, now_ms)
            return not waiting.is_settled

        try:
            request, body = self._desk.request(frame)
            until_ms = frame.deadline_ms
            answer = self._asked(wire, request, [body], now_ms, until_ms, is_awaited)
            if not adopted:
                results = _stored(frame, answer)
                if results:
                    for message, result in zip(messages, results, strict=True):
                        message.waiter.settle(result)
                    return True
                self._loop.call_soon_threadsafe(self._desk.adopt, frame, now_ms)
            # Before `close` can go on: so the desk knows of it when it is closed.
            self._loop.call_soon_threadsafe(self._desk.answered, frame, now_ms, answer)
        finally:
            self._lock.release()
        return True

    def end(self, end: End) -> bool:
        """Tell a broker how a transaction ended; `end.settle` gets what came of it.

        False if it has to go the other way, and did not leave.
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
            else:  # also after Ctrl-C: the I/O thread goes on telling it
                self._loop.call_soon_threadsafe(ends.adopt, end, answer)
            self._lock.release()
        return True

    def _taken(self, address: str, now_ms: int) -> BlockingWire | None:
        """The connection to a broker, with the lock held; None if the direct way is not open."""
        if (
            not self._is_possible
            or now_ms - self._shared_ms < SHARED_MS
            or not address
            or not self._desk.may_be_bypassed
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
        """The answer to a request, or why there is none; then the connection is closed."""
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
        """The connection to a broker; None if there is none, and none can be had."""
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
        """Wait for the one that is under way, and close the connections.

        In a forked child nothing is done: another thread may have held the lock.
        """
        if self._core.io.orphaned:
            return
        with self._lock:
            self._is_possible = False
            for wire in self._wires.values():
                wire.close()
            self._wires.clear()


def _stored(frame: SendFrame, answer: Frame | KourouError) -> list[SendResult]:
    """The results of messages that are all stored as promised; empty for everything else."""
    if isinstance(answer, KourouError) or frame.lanes[0].borrowed:
        return []
    results = []
    for outcome in read_outcomes(frame, answer):
        if not isinstance(outcome, SendResult) or outcome.status is not SendStatus.SEND_OK:
            return []
        results.append(outcome)
    return results
