"""The connections of one client: one to each server that it communicates with.

Each client has its own connections although clients share a thread. The broker identifies the
consumers of a group by their connections, and one connection must not carry two consumers.

State: soft. Used on the I/O thread only.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol, TypeVar

from kourou.client.session import io_thread
from kourou.client.session.discovery import zmq_endpoint
from kourou.clock import Clock
from kourou.errors import (
    Code,
    DecodeError,
    KourouError,
    TimedOut,
    Unavailable,
    UnknownOutcome,
    error_from_code,
)
from kourou.protocol.messages.quotas import FlowControlled
from kourou.protocol.request import Request, Response
from kourou.protocol.wire.frames import NO_TRACE, Frame
from kourou.transport.curve_keys import ClientCurve
from kourou.transport.pending_requests import Outcome
from kourou.transport.tcp_link import Buffer
from kourou.transport.wire import WireTimeouts
from kourou.transport.zmq_client import WireReply, ZmqConnection

CONNECT_WAIT_MS = 3_000
"""How long a request waits for a connection before another server should be tried."""

HURRIED_MS = 1_000
"""How long a hurried request waits for its reply."""

ResponseT = TypeVar("ResponseT", bound=Response)

FIRST_PAUSE_MS = 20
LONGEST_PAUSE_MS = 500


class ClientWire(Protocol):
    """The operations of a connection; ZmqConnection implements it.

    `on_connected`, if set, is called each time the connection is established.
    """

    on_connected: Callable[[], None] | None

    @property
    def connected(self) -> bool:
        """Return whether the connection is established, as far as is known."""
        ...

    async def request(
        self,
        request: Request,
        *,
        body: Sequence[Buffer] = (),
        timeout_ms: int,
        trace: bytes = NO_TRACE,
    ) -> WireReply:
        """Send a request and wait for the reply; a reply with an error code is returned."""
        ...

    def oneway(self, request: Request, *, body: Sequence[Buffer] = (), timeout_ms: int) -> None:
        """Send a request that has no reply."""
        ...

    def next_correlation(self) -> int:
        """Return the correlation number of a new request."""
        ...

    def submit(
        self,
        parts: Sequence[Buffer],
        correlation: int,
        callback: Callable[[Outcome], None] | None,
        deadline_ms: int,
    ) -> None:
        """Send an encoded request; the callback receives its outcome."""
        ...

    def gather(self) -> None:
        """Collect what is sent until the end of this loop iteration, and send it together."""
        ...

    def send_parts(self, parts: Sequence[Buffer]) -> bool:
        """Send a reply to a request of the server."""
        ...

    def close(self) -> None:
        """Close the connection; pending requests fail."""
        ...


Dial = Callable[[str, Callable[[Frame], None]], ClientWire]
"""(address, on_notify) -> a connection; called on the I/O thread's loop."""


def zmq_dial(
    clock: Clock,
    curve: ClientCurve | None = None,
    *,
    busy_poll_us: int = 0,
    on_behalf_of: str = "",
) -> Dial:
    """Return a function that opens ZeroMQ connections.

    With `curve` they are encrypted, and the servers' keys must be known. `busy_poll_us` applies to
    connections on an application's own loop only: on the I/O thread, polling for replies would take
    the interpreter from the threads that wait for them. `on_behalf_of` as in ZmqConnection.
    """

    def dial(address: str, on_notify: Callable[[Frame], None]) -> ClientWire:
        own = not io_thread.is_network_thread(asyncio.get_running_loop())
        return ZmqConnection(
            address,
            on_notify=on_notify,
            connect_wait_ms=CONNECT_WAIT_MS,
            clock=clock,
            timeouts=WireTimeouts(busy_poll_us=busy_poll_us if own else 0),
            curve=curve,
            on_behalf_of=on_behalf_of,
        )

    return dial


class Connections:
    """Open connections by address. `on_notify(address, frame)` receives unsolicited frames.

    `on_reconnected(address)`, if set, is called when the connection to a server is established
    again.
    """

    def __init__(self, dial: Dial, on_notify: Callable[[str, Frame], None]) -> None:
        self._dial = dial
        self._on_notify = on_notify
        self._open: dict[str, ClientWire] = {}
        self._name_servers: set[str] = set()
        self._connected_before: set[str] = set()
        self._closed = False
        self.on_reconnected: Callable[[str], None] | None = None

    def to(self, address: str) -> ClientWire:
        """Return the connection to a broker's address as in its route; opens it if necessary."""
        wire = self._open.get(address)
        if wire is None:
            if self._closed:
                raise error_from_code(Code.SERVICE_NOT_AVAILABLE, "the client is closing")

            def notify(frame: Frame) -> None:
                self._on_notify(address, frame)

            wire = self._open[address] = self._dial(address, notify)
            wire.on_connected = partial(self._connected, address)
        return wire

    def _connected(self, address: str) -> None:
        if address not in self._connected_before:
            self._connected_before.add(address)
        elif self.on_reconnected is not None:
            self.on_reconnected(address)

    def to_name_server(self, address: str) -> ClientWire:
        """Return the connection to a name server, with its address in the form that users write."""
        endpoint = zmq_endpoint(address)
        self._name_servers.add(endpoint)
        return self.to(endpoint)

    async def ask(
        self,
        address: str,
        request: Request,
        *,
        body: bytes = b"",
        timeout_ms: int,
        also: Collection[int] = (),
        hurried: bool = False,
    ) -> WireReply:
        """Send a request to a broker; a code other than SUCCESS and `also` is raised as its error.

        A `hurried` request, for example of a client that is closing, waits for no connection and
        only HURRIED_MS for the reply. Without an established connection it raises Unavailable at
        once.
        """
        if hurried:
            if not self.is_connected(address):
                raise Unavailable(f"not connected to {address}")
            timeout_ms = min(timeout_ms, HURRIED_MS)
        return await asked(self.to(address), request, body=body, timeout_ms=timeout_ms, also=also)

    def is_connected(self, address: str) -> bool:
        """Return whether a connection to this broker is established; opens none."""
        wire = self._open.get(address)
        return wire is not None and wire.connected

    def lost(self, address: str) -> bool:
        """Return whether a connection to this address was established and is lost now.

        It may be established again.
        """
        return address in self._connected_before and not self.is_connected(address)

    def try_connect(self, address: str) -> bool:
        """Return whether a connection to this broker is established; opens one for later if not."""
        return self.to(address).connected

    def retain_routes(self, addresses: Collection[str]) -> None:
        """Close connections to brokers that no route contains any more."""
        for address in list(self._open):
            if address not in addresses and address not in self._name_servers:
                self._open.pop(address).close()
                self._connected_before.discard(address)

    def close(self) -> None:
        """Close all connections, and refuse to open new ones."""
        self._closed = True
        while self._open:
            self._open.popitem()[1].close()


async def asked(
    wire: ClientWire,
    request: Request,
    *,
    body: bytes = b"",
    timeout_ms: int,
    also: Collection[int] = (),
) -> WireReply:
    """Return the reply of one server; any code except SUCCESS and those in `also` is raised.

    A request that is over a quota is repeated when the server says, as long as there is time.
    """
    parts = (body,) if body else ()
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_ms / 1_000
    while True:
        reply = await wire.request(request, body=parts, timeout_ms=timeout_ms)
        if reply.code == Code.SUCCESS or reply.code in also:
            return reply
        pause_ms = retry_after_ms(reply.header)
        timeout_ms = int((until_s - loop.time()) * 1_000) - pause_ms
        if not pause_ms or timeout_ms <= 0:
            raise error_from_code(reply.code, reply.remark, pause_ms)
        await asyncio.sleep(pause_ms / 1_000)


def retry_after_ms(header: object) -> int:
    """Return when a request that is over a quota may be repeated; 0 if the reply does not say."""
    return header.retry_after_ms if isinstance(header, FlowControlled) else 0


def header_of(reply: WireReply, kind: type[ResponseT]) -> ResponseT:
    """Return the reply's header as `kind`. Raises DecodeError if the server left it out."""
    if not isinstance(reply.header, kind):
        raise DecodeError(f"the reply has no {kind.__name__}")
    return reply.header


def body_of(reply: WireReply) -> memoryview:
    """Return the reply's body, empty if there is none."""
    return memoryview(reply.body[0]) if reply.body else memoryview(b"")


class Pauses:
    """Pauses between attempts while a broker has no leader.

    A broker name has one leader at a time. When it dies another one takes over (an election, an
    operator who promotes a follower, a restart), and until then there is none. All clients notice
    this at the same time, so pauses double from `first_ms` to `longest_ms`, and each is randomized
    between half and all.
    """

    __slots__ = ("_chance", "_longest_ms", "_span_ms")

    def __init__(
        self,
        chance: random.Random,
        *,
        first_ms: int = FIRST_PAUSE_MS,
        longest_ms: int = LONGEST_PAUSE_MS,
    ) -> None:
        self._chance = chance
        self._span_ms = first_ms
        self._longest_ms = longest_ms

    def grow(self, times: int) -> None:
        """Continue as if this many pauses had been made."""
        self._span_ms = min(self._span_ms << min(times, 16), self._longest_ms)

    def next_ms(self) -> int:
        """Return the length of the next pause in ms."""
        span_ms = self._span_ms
        self.grow(1)
        return int(span_ms * (0.5 + 0.5 * self._chance.random()))


def nobody_leads(error: KourouError) -> bool:
    """Return whether nothing was changed, because no leader was available: a retry is harmless.

    The request was refused by a replica that is not the leader, or was not sent.
    """
    return isinstance(error, Unavailable) and error.wire_code == Code.SERVICE_NOT_AVAILABLE


def was_lost(error: KourouError) -> bool:
    """Return whether the outcome is unknown, but there is time left for a retry.

    The connection was lost during the request, or the leader lost its leadership.
    """
    return isinstance(error, UnknownOutcome) and not isinstance(error, TimedOut)
