"""Commits and rollbacks of half messages, which are retried until the broker has received them.

RocketMQ sends an end once and without a reply; if it is lost, a check-back finds the outcome a
minute later. Kourou's brokers reply, and repeating an end is idempotent, so the client retries
until the send timeout is over. After that the check-back resolves the transaction as well.

Ends that become ready in one iteration of an event loop are passed to the I/O thread together, as
sends are, and so are their results on the way back.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kourou.client.session.client_session import Session
from kourou.client.session.io_thread import ThreadQueue, running_loop
from kourou.errors import (
    Code,
    DecodeError,
    KourouError,
    Unavailable,
    UnknownOutcome,
    error_from_code,
)
from kourou.model.message import SendResult, SysFlag
from kourou.model.transaction import TransactionState
from kourou.protocol.messages.sends import EndTransaction
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.wire.frames import Frame, decode_reply, encode_request
from kourou.time_limit import within

if TYPE_CHECKING:
    from kourou.client.tracing.message_trace import SendTrace

Complete = Callable[[KourouError | None], None]
"""Called on the thread that got the reply: with None when the broker has received the end."""

PAUSE_MS = 50
LONGEST_PAUSE_MS = 1_000
"""The pauses between attempts double from PAUSE_MS up to this."""

ATTEMPT_MS = 3_000
"""How long one attempt waits for its reply."""

_NUMBERS = {
    TransactionState.COMMIT: int(SysFlag.TRANSACTION_COMMIT),
    TransactionState.ROLLBACK: int(SysFlag.TRANSACTION_ROLLBACK),
    TransactionState.UNKNOWN: 0,
}
_TAKEN = frozenset({Code.SUCCESS, Code.FLUSH_DISK_TIMEOUT, Code.FLUSH_SLAVE_TIMEOUT})
_log = logging.getLogger("kourou.client.transactions")


@dataclass(slots=True)
class PendingEnd:
    """The end of one half message, and the callback for its result."""

    topic: str
    broker_name: str
    request: EndTransaction
    deadline_ms: int
    settle: Complete
    waited: bool = True
    """Whether a caller waits for the result; if not, it is sent together with the next request."""
    attempt: int = 0
    error: KourouError | None = None
    """The error of the last attempt."""


def end_request(group: str, half: SendResult, state: TransactionState) -> EndTransaction:
    """Return the request that ends a half message, from the result of its send."""
    _, position = decode_offset_id(half.offset_message_id)
    return EndTransaction(
        producer_group=group,
        tran_state_table_offset=half.offset,
        commit_log_offset=position,
        commit_or_rollback=_NUMBERS[state],
        msg_id=half.message_id,
        transaction_id=half.message_id,
        bname=half.queue.broker_name,
    )


class TransactionEnds:
    """The ends of one producer's transactions."""

    def __init__(self, session: Session) -> None:
        self._connections = session.connections
        self._routes = session.routes
        self._clock = session.clock
        self._loop = session.io.loop
        self._queue: ThreadQueue[PendingEnd] = ThreadQueue(session.io.loop, self._take)
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.message_trace: SendTrace | None = None

    @property
    def open(self) -> int:
        """The number of ends that wait for a reply, without those not yet on the I/O thread."""
        return self._open

    def put(self, end: PendingEnd) -> None:
        """Send an end; callable in any thread."""
        if running_loop() is self._loop:
            self._take([end])
        elif not self._queue.put(end):
            end.settle(Unavailable("the client is closed"))

    def address_of(self, end: PendingEnd) -> str:
        """Return the leader's address by the known route, or "" without one.

        Callable in any thread.
        """
        known = self._routes.known(end.topic)
        return "" if known is None else known.leader_address(end.broker_name) or ""

    def adopt(self, end: PendingEnd, answer: Frame | KourouError) -> None:
        """Continue with an end that another thread sent once, given the reply."""
        self._open += 1
        self._idle.clear()
        end.attempt = 1
        self._answered(end, answer)

    def _take(self, ends: list[PendingEnd]) -> None:
        self._open += len(ends)
        self._idle.clear()
        for end in ends:
            self._send_end(end)

    def _send_end(self, end: PendingEnd) -> None:
        now_ms = self._clock.monotonic_ms()
        left_ms = min(end.deadline_ms - now_ms, ATTEMPT_MS)
        if left_ms <= 0:
            self._settle(
                end, end.error or Unavailable("the deadline passed before the outcome was sent")
            )
            return
        end.attempt += 1
        try:
            if self._closed:
                raise Unavailable("the client is closed")
            address = self.address_of(end)
            if not address:
                raise Unavailable(f"broker {end.broker_name} has no leader")
            wire = self._connections.to(address)
            correlation = wire.next_correlation()
            if not end.waited:
                wire.gather()
            head = encode_request(end.request, correlation=correlation, deadline_ms=left_ms)
            wire.submit(
                [head],
                correlation,
                lambda outcome: self._answered(end, outcome),
                now_ms + left_ms,
            )
        except KourouError as error:
            self._failed(end, error)

    def _answered(self, end: PendingEnd, answer: Frame | KourouError) -> None:
        error = read_end(end, answer)
        if error is None:
            self._settle(end, None)
        else:
            self._failed(end, error)

    def _failed(self, end: PendingEnd, error: KourouError) -> None:
        end.error = error
        pause_ms = min(PAUSE_MS << min(end.attempt - 1, 10), LONGEST_PAUSE_MS)
        later = isinstance(error, (Unavailable, UnknownOutcome)) and not self._closed
        if not later or self._clock.monotonic_ms() + pause_ms >= end.deadline_ms:
            self._settle(end, error)
            return
        _log.info(
            "transaction-end-repeated: retrying at broker %(broker)s to end transaction "
            "%(message_id)s after: %(error)s",
            {"broker": end.broker_name, "message_id": end.request.msg_id, "error": error},
        )
        self._routes.stale(end.topic)
        self._loop.call_later(pause_ms / 1000, self._send_end, end)

    def _settle(self, end: PendingEnd, error: KourouError | None) -> None:
        end.settle(error)
        if error is None and self.message_trace is not None:
            self.message_trace.ended(end, self.address_of(end))
        self._open -= 1
        if not self._open:
            self._idle.set()

    async def close(self, timeout_ms: int) -> None:
        """Wait for running requests; then stop retrying."""
        try:
            await within(self._idle.wait(), timeout_ms / 1000)
        except TimeoutError:
            _log.warning(
                "transaction-ends-pending: closing while the ends of %(transactions)d transactions "
                "are not confirmed",
                {"transactions": self._open},
            )
        self._closed = True


def read_end(end: PendingEnd, answer: Frame | KourouError) -> KourouError | None:
    """Return the error of an end by its reply; None if the broker has accepted it."""
    if isinstance(answer, KourouError):
        return answer
    try:
        code, remark, _ = decode_reply(answer, None)
    except DecodeError as error:
        return UnknownOutcome(f"{end.broker_name}: {error}")
    if code in _TAKEN:
        return None
    return error_from_code(code, remark)
