"""One connection to one server: sends requests, matches replies, enforces deadlines.

A request ends in exactly one of these ways:

- A reply arrives, whatever its code.
- It was not sent before the deadline (no connection, or a full pipe): Unavailable. It certainly was
  not executed.
- It was sent and its deadline passed: TimedOut. It may have been executed.
- It was sent and the connection ended: UnknownOutcome. It may have been executed.

Stale requests: bytes in a queue or a socket buffer during a network partition would be delivered
after it, long after the caller gave up. Therefore a request that times out closes the connection
and opens a new one, which drops the queue; all other requests in flight end as UnknownOutcome. The
connection is kept only if a *later* request on it was answered: the peer reads in order, so the
late request was delivered and only waits there (a long poll, a slow disk).

Messages that were queued for a lost connection are not sent on the next one. Requests that cannot
be sent yet wait here.

Key changes: a connection keeps the key pair with which it began. When the file of the pair has
changed, a second connection is opened, and takes over when the server has accepted its key; until
then the first one goes on. Requests wait for that moment until those in flight have their replies,
but at most SWITCH_S, so that none overtakes another. Later replies, as those of long polls, still
arrive on the former connection, which is closed after the last one.

State: soft. All calls must be made on the thread of the loop on which the connection was opened,
and in the process that opened it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from kourou.clock import Clock, SystemClock
from kourou.errors import (
    BadRequest,
    ConfigError,
    DecodeError,
    KourouError,
    TimedOut,
    Unavailable,
    UnknownOutcome,
)
from kourou.model.units import NEVER_MS
from kourou.protocol.request import Request
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.frames import (
    NO_TRACE,
    Frame,
    FrameKind,
    decode_frame,
    decode_reply,
    encode_request,
    name_user,
    patch_deadline,
)
from kourou.transport import curve_keys
from kourou.transport.addresses import split_address
from kourou.transport.curve_keys import ClientCurve, trouble_of
from kourou.transport.pending_requests import Outcome, Pending, PendingRequests
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.tcp_link import Buffer
from kourou.transport.wire import FAILED, PATIENT, UNOPENED, Wire, WireEvent, WireTimeouts
from kourou.transport.zmtp_wire import ZmtpWire

_log = logging.getLogger("kourou.transport")

RECONNECT_MS_MIN = 50
SWITCH_S = 0.2
"""How long requests may wait for those in flight when the connection is replaced."""


@dataclass(frozen=True, slots=True)
class WireReply:
    """A reply. `header` is decoded according to the request table; None if it has none."""

    code: int
    remark: str
    header: msgspec.Struct | None
    body: list[Buffer]


@dataclass(frozen=True, slots=True)
class ZmqClientStatistics:
    """Counters since the object was created, and current gauges."""

    connected: bool
    in_flight: int
    waiting: int
    sent: int
    answered: int
    timed_out: int
    late_answers: int
    reopened: int


class ZmqConnection:
    """A DEALER connection to `address` (`host:port`). Reconnects by itself until it is closed.

    `on_notify` receives every frame that is not a reply: notifications and requests of the server.
    `connect_wait_ms` limits how long a request waits for a connection; with None it waits up to its
    deadline. `timeouts` holds the timeouts. With `curve` the connection is encrypted, and the
    server must have the key that is known for `named` (`address` before name resolution; default:
    `address`). Every request is sent on behalf of the user `on_behalf_of`, if there is one, which a
    broker accepts from consoles only. `on_connected`, if set, is called each time a connection is
    established, and `on_lost` each time one is lost, other than by `close`.
    """

    def __init__(
        self,
        address: str,
        *,
        on_notify: Callable[[Frame], None] | None = None,
        connect_wait_ms: int | None = None,
        clock: Clock | None = None,
        timeouts: WireTimeouts = PATIENT,
        curve: ClientCurve | None = None,
        named: str = "",
        on_behalf_of: str = "",
    ) -> None:
        self.address = address
        self._on_behalf_of = on_behalf_of
        self._curve = curve
        self._named = named or address
        self._timeouts = timeouts
        split_address(address)  # raise the ConfigError to the caller
        self.on_connected: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self._on_notify = on_notify
        self._connect_wait_ms = connect_wait_ms
        self._clock: Clock = clock or SystemClock()
        self._complaints = RateLimitedLog(_log, self._clock)
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._correlations = count(1)
        self._pending = PendingRequests()
        self._next_check_ms = NEVER_MS
        self._timer: asyncio.TimerHandle | None = None
        self._sent = self._answered = self._timed_out = self._late = self._reopened = 0
        self._closed = False
        self._open_later: asyncio.TimerHandle | None = None
        self._failed_attempts = 0
        self._last_trouble = "no connection yet"
        self._certain = False  # did the server report it, or is it only inferred?
        self._successor: Wire | None = None
        self._switch_later: asyncio.TimerHandle | None = None  # set while requests wait for it
        self._former: Wire | None = None
        self._former_through = 0  # the last request that was sent there
        self._check_later: asyncio.TimerHandle | None = None
        self._open()
        if curve is not None:
            self._check_pair_later()

    # -- lifecycle --------------------------------------------------------------------------------

    def _open(self) -> None:
        self._open_later = None
        self._connected = False
        self._wire = self._make_wire()
        try:
            self._wire.open()
        except ConfigError as error:  # if the key is added, the next attempt finds it
            self._trouble(str(error), logged=True)
            self._open_later = self._loop.call_later(self._delay_ms() / 1_000, self._open)

    def _make_wire(self) -> Wire:
        if self._curve is None:
            return ZmtpWire(self.address, self._timeouts, self)
        from kourou.transport.curve_wire import CurveWire

        return CurveWire(self.address, self._timeouts, self, self._curve, self._named)

    def _shut(self) -> None:
        self._connected = False
        if self._open_later is not None:  # between two attempts
            self._open_later.cancel()
            self._open_later = None
        self._end_switch()
        for wire in (self._wire, self._successor, self._former):
            if wire is not None:
                wire.close()
        self._successor = self._former = None

    def _reopen(self, reason: str, delay_ms: int) -> None:
        """Replace the connection. Sent requests end as UnknownOutcome; unsent ones keep waiting."""
        stood = self._connected
        self._reopened += stood
        self._shut()
        sent = self._pending.take_sent()
        if delay_ms:
            self._open_later = self._loop.call_later(delay_ms / 1_000, self._open)
        else:
            self._open()
        if stood and self.on_lost is not None:
            self.on_lost()
        for one in sent:
            one.end(UnknownOutcome(f"{self.address}: {reason}"))

    def close(self) -> None:
        """Close. Requests in flight end as UnknownOutcome, waiting ones as Unavailable."""
        if self._closed:
            return
        self._closed = True
        for timer in (self._timer, self._check_later):
            if timer is not None:
                timer.cancel()
        if os.getpid() == self._pid:
            self._shut()
        text = f"the connection to {self.address} was closed"
        for one in self._pending.take_all():
            one.end(UnknownOutcome(text) if one.parts is None else Unavailable(text))

    @property
    def connected(self) -> bool:
        """Is the connection established, as far as is known?"""
        return self._connected

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait for a connection, or for room in its pipe."""
        return self._pending.waiting_bytes

    def statistics(self) -> ZmqClientStatistics:
        """Return the counters and gauges of this connection."""
        return ZmqClientStatistics(
            connected=self._connected,
            in_flight=self._pending.in_flight,
            waiting=self._pending.waiting,
            sent=self._sent,
            answered=self._answered,
            timed_out=self._timed_out,
            late_answers=self._late,
            reopened=self._reopened,
        )

    # -- requests ---------------------------------------------------------------------------------

    async def request(
        self,
        request: Request,
        *,
        body: Sequence[Buffer] = (),
        timeout_ms: int,
        trace: bytes = NO_TRACE,
    ) -> WireReply:
        """Send a request and wait for its reply.

        Raises Unavailable, TimedOut, UnknownOutcome or DecodeError. A reply with an error code is
        returned, not raised: the caller knows which codes it expects.
        """
        correlation = self.next_correlation()
        head = encode_request(request, correlation=correlation, deadline_ms=timeout_ms, trace=trace)
        future: asyncio.Future[Frame] = self._loop.create_future()

        def ended(outcome: Outcome) -> None:
            if future.done():
                return
            if isinstance(outcome, KourouError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self.submit([head, *body], correlation, ended, deadline_ms)
        frame = await future
        code, remark, header = decode_reply(frame, REQUESTS[request.code].response)
        return WireReply(code, remark, header, frame.body)

    def oneway(
        self,
        request: Request,
        *,
        body: Sequence[Buffer] = (),
        timeout_ms: int = 3_000,
        trace: bytes = NO_TRACE,
    ) -> None:
        """Send without waiting for a reply.

        It waits for a connection up to the timeout and is then dropped.
        """
        correlation = self.next_correlation()
        head = encode_request(
            request,
            correlation=correlation,
            deadline_ms=timeout_ms,
            trace=trace,
            kind=FrameKind.ONEWAY,
        )
        self.submit([head, *body], correlation, None, self._clock.monotonic_ms() + timeout_ms)

    def next_correlation(self) -> int:
        """Return a request number. Numbers increase; `submit` must be called in that order."""
        return next(self._correlations)

    def submit(
        self,
        parts: Sequence[Buffer],
        correlation: int,
        callback: Callable[[Outcome], None] | None,
        deadline_ms: int,
    ) -> None:
        """Send an encoded request; `callback` is called once with its outcome, on the loop.

        `deadline_ms` is absolute monotonic time. Without a callback the request is oneway. The
        callback may run before this returns. Buffers of 128 KiB and more are not copied. Raises
        Unavailable if the connection is closed or was opened by another process.
        """
        self._check_usable()
        if self._on_behalf_of:
            parts = [name_user(parts[0], self._on_behalf_of), *parts[1:]]
        give_up_ms = deadline_ms
        if self._connect_wait_ms is not None:
            give_up_ms = min(deadline_ms, self._clock.monotonic_ms() + self._connect_wait_ms)
        one = Pending(callback, deadline_ms, give_up_ms, parts)
        if not self._pending.waiting and self._try_send(one):
            if callback is not None:
                self._pending.add_sent(correlation, one)
                self._check_by(deadline_ms)
        elif self._pending.add_waiting(correlation, one):
            self._check_by(give_up_ms)
        else:
            one.end(Unavailable(f"too many requests are waiting for {self.address}"))

    def gather(self) -> None:
        """Batch the messages sent until the end of the loop iteration."""
        if self._connected:
            self._wire.gather()

    def send_parts(self, parts: Sequence[Buffer]) -> bool:
        """Send a reply to a request of the server; False if it cannot be sent now."""
        self._check_usable()
        return self._send(Pending(None, NEVER_MS, NEVER_MS, parts))

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable(f"the connection to {self.address} is closed")
        if os.getpid() != self._pid:
            raise Unavailable(
                f"the connection to {self.address} was opened before this process forked",
                hint="open a new one in the child",
            )

    def _try_send(self, one: Pending) -> bool:
        return self._switch_later is None and self._send(one)

    def _send(self, one: Pending) -> bool:
        if not self._connected:
            return False
        parts = one.parts
        assert parts is not None
        if not self._wire.send(parts):
            return False
        one.parts = None
        self._sent += 1
        return True

    def _send_waiting(self) -> None:
        now_ms = self._clock.monotonic_ms()
        while (one := self._pending.first_waiting()) is not None:
            assert one.parts is not None
            left_ms = max(1, one.deadline_ms - now_ms)  # a part of its time has passed
            one.parts = [patch_deadline(one.parts[0], left_ms), *one.parts[1:]]
            if not self._try_send(one):
                return
            self._pending.first_left()
            if one.callback is not None:
                self._check_by(one.deadline_ms)

    # -- replies ----------------------------------------------------------------------------------

    def arrived(self, wire: Wire, parts: list[Buffer]) -> None:
        """A message arrived; called by a wire."""
        try:
            frame = decode_frame(parts)
        except (DecodeError, BadRequest) as error:
            self._complaints.warning(
                "frame-dropped: dropping a frame from %(peer)s: %(error)s",
                {"peer": self.address, "error": error},
            )
            return
        if frame.kind != FrameKind.REPLY:
            # What a leader sends on a former connection follows from what it was sent there.
            if self._on_notify is not None and wire is self._wire:
                self._on_notify(frame)
            return
        one = self._pending.answered(frame.correlation)
        if one is None:
            self._late += 1
            return
        self._answered += 1
        one.end(frame)
        if self._switch_later is not None and not self._pending.in_flight:
            self._switch()

    # -- the connection ---------------------------------------------------------------------------

    def room(self) -> None:
        """A wire's queue is empty again; called by the wire."""
        if self._pending.waiting:
            self._send_waiting()

    def happened(self, wire: Wire, kind: WireEvent) -> None:
        """A connection was established or ended; called by its wire."""
        if wire is self._successor:
            self._successor_happened(kind)
        elif wire is self._former:  # it ended
            self._former = None
            for one in self._pending.take_sent(self._former_through):
                one.end(UnknownOutcome(f"{self.address}: the connection was lost"))
        elif kind is WireEvent.READY:
            self._established()
        elif kind in FAILED:
            self._failed_handshake(kind)
        else:
            if kind in UNOPENED:
                self._certain = False
                self._last_trouble = UNOPENED[kind]
            self._reopen("the connection was lost", self._delay_ms())

    def _established(self) -> None:
        self._connected = True
        self._certain = False
        self._failed_attempts = 0
        self._send_waiting()
        if self.on_connected is not None:
            self.on_connected()

    def _failed_handshake(self, kind: WireEvent) -> None:
        """Record the reason of a failed handshake.

        A server may close the connection before its error message arrives; then the former reason
        is kept.
        """
        certain = kind is not WireEvent.BAD_GREETING
        if certain or not self._certain:
            self._certain = certain
            logged = certain or self._curve is not None
            self._trouble(trouble_of(kind, self._curve), logged=logged)

    def _trouble(self, why: str, *, logged: bool) -> None:
        """Record why there is no connection.

        It is logged if an operator must correct keys, even if no request is waiting.
        """
        self._last_trouble = why
        if logged:
            self._complaints.warning(
                "connection-failed: cannot talk to %(address)s: %(reason)s",
                {"address": self.address, "reason": why},
            )

    def _delay_ms(self) -> int:
        """Return the pause before the next attempt to connect, with exponential back-off."""
        attempts = self._failed_attempts
        self._failed_attempts = min(attempts + 1, 16)
        return min(RECONNECT_MS_MIN << attempts, self._timeouts.reconnect_ms_max)

    # -- a changed key pair -----------------------------------------------------------------------

    def _check_pair_later(self) -> None:
        if self._check_later is not None:
            self._check_later.cancel()
        self._check_later = self._loop.call_later(curve_keys.CHECK_S, self._check_pair)

    def _check_pair(self) -> None:
        self._check_pair_later()
        if self._former is not None:
            if not self._pending.sent(self._former_through):
                self._former.close()
                self._former = None
        elif self._connected and self._successor is None and self._wire.is_outdated:
            self._successor = self._make_wire()
            try:
                self._successor.open()
            except ConfigError as error:
                self._successor = None
                self._stays(str(error))

    def _stays(self, why: str) -> None:
        self._complaints.warning(
            "connection-key-refused: the connection to %(address)s keeps its earlier key pair, "
            "because none with the changed one can be opened: %(reason)s",
            {"address": self.address, "reason": why},
        )

    def _successor_happened(self, kind: WireEvent) -> None:
        if kind is WireEvent.READY:
            self._switch_later = self._loop.call_later(SWITCH_S, self._switch)
            if not self._pending.in_flight:
                self._switch()
        elif kind in FAILED:
            self._stays(trouble_of(kind, self._curve))
        else:  # the next check opens another one
            self._successor = None
            self._end_switch()
            self._send_waiting()

    def _switch(self) -> None:
        """Send on the successor from now on."""
        self._end_switch()
        assert self._successor is not None
        self._former, self._former_through = self._wire, max(self._pending.sent(), default=0)
        self._wire, self._successor = self._successor, None
        self._check_pair_later()  # the former one stays until the owner is registered again
        _log.info(
            "connection-key-changed: the connection to %(address)s has the changed key pair",
            {"address": self.address},
        )
        self._established()

    def _end_switch(self) -> None:
        if self._switch_later is not None:
            self._switch_later.cancel()
            self._switch_later = None

    # -- deadlines --------------------------------------------------------------------------------

    def _check_by(self, at_ms: int) -> None:
        """Check the deadlines no later than `at_ms`.

        A single timer is set to the earliest known deadline; when it fires, all requests are
        checked. Replies do not change it, so a request needs no timer of its own.
        """
        if at_ms >= self._next_check_ms:
            return
        self._next_check_ms = at_ms
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0, at_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(delay_ms / 1_000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._next_check_ms = NEVER_MS
        expired = self._pending.expire(self._clock.monotonic_ms())
        self._timed_out += len(expired.left) + len(expired.never_left)
        if expired.next_check_ms != NEVER_MS:
            self._check_by(expired.next_check_ms)
        never_left = self._why_it_never_left()
        if expired.zombie:
            self._reopen("the connection was reset, because a request got no answer", 0)
        for one in expired.left:
            one.end(TimedOut(f"{self.address} did not respond in time"))
        for one in expired.never_left:
            one.end(never_left())

    def _why_it_never_left(self) -> Callable[[], KourouError]:
        if self._connected:
            return lambda: Unavailable(
                f"{self.address} accepts no more requests: its queue is full"
            )
        trouble = self._last_trouble
        return lambda: Unavailable(f"cannot reach {self.address}", hint=trouble)
