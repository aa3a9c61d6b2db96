"""libzmq sockets: one context per process, safe options, keys, monitors, and their event loop.

ZeroMQ's defaults are unsafe: a full ROUTER drops messages silently, frame sizes are unlimited, and
a request queued during a partition is delivered long after its sender gave up. Each option of
`open_router` and `open_dealer` removes one of these.

State: soft. Contexts and the authenticator belong to one process and are never used after a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import socket as socketlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

from kourou.clock import SystemClock
from kourou.model import limits
from kourou.model.limits import HANDSHAKE_MS_MAX
from kourou.transport.addresses import join_address, split_address
from kourou.transport.curve_keys import AllowedKeys, KeyPair
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.tcp_link import Buffer
from kourou.transport.wire import PATIENT, WireEvent, WireTimeouts

# -- contexts -------------------------------------------------------------------------------------

# A context owns I/O threads, and threads do not survive a fork: a child that used its parent's
# context would wait forever for threads that do not exist. Therefore contexts are keyed by process
# id. `_orphans` keeps inherited contexts from being freed in a child, because freeing them would
# close descriptors that the parent still uses.


_lock = threading.Lock()
_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}
_orphans: list[zmq.Context[zmq.Socket[bytes]]] = []

SOCKETS_MAX = 8_192
"""Limit of sockets, far above the need of one process.

A client of many brokers reaches the library's default of 1,023.
"""


def process_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return the context of the running process; created on first use, from any thread."""
    pid = os.getpid()
    context = _contexts.get(pid)
    if context is None:
        with _lock:
            context = _contexts.get(pid)
            if context is None:
                context = zmq.Context()
                context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
                _contexts[pid] = context
    return context


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that does not exist here may have held the old one
    _orphans.extend(_contexts.values())
    _contexts.clear()


os.register_at_fork(after_in_child=_forked)


_log = logging.getLogger("kourou.transport")
_quiet = logging.getLogger("kourou.transport.zap")
_quiet.setLevel(logging.CRITICAL)  # it would repeat what this module logs
_numbers = count(1)


# -- the CURVE authenticator: one per process, consulted by ZeroMQ at each handshake --------------

# ZeroMQ sends each authentication request to an in-process address (ZAP,
# https://rfc.zeromq.org/spec/27/). If no authenticator is bound there, it would accept any key, so
# the sockets require one (ZAP_ENFORCE_DOMAIN), and each listener has a domain of its own. A
# separate thread answers the requests, so a busy loop does not delay handshakes. The thread starts
# with the first listener that has keys and ends with the process, because its address cannot be
# bound again immediately.


class _Provider:
    """The authenticator's callback for one domain."""

    def __init__(self, allowed: AllowedKeys, address: Callable[[], str]) -> None:
        self._allowed = allowed
        self._address = address
        self._complaints = RateLimitedLog(_log, SystemClock())

    def callback(self, domain: str, key: bytes) -> bool:
        """May the client with this public key (Z85) connect?"""
        del domain
        allowed = self._allowed.allows(key.decode("ascii"))
        if not allowed:
            self._complaints.warning(
                "client-key-refused: refused a client at %(address)s: its public key "
                "%(public_key)s is not in curveClients or curveMembers",
                {"address": self._address(), "public_key": key.decode("ascii")},
            )
        return allowed


class _Gate:
    """The process's authenticator; it starts with the first listener."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._domains: set[str] = set()
        self._running: ThreadAuthenticator | None = None
        self._orphans: list[ThreadAuthenticator] = []

    def open(self, allowed: AllowedKeys, address: Callable[[], str]) -> str:
        """Register a domain whose clients are checked against `allowed`; returns its name."""
        with self._lock:
            if self._running is None:
                self._running = ThreadAuthenticator(process_context(), log=_quiet)
                self._running.start()
            domain = f"kourou-{next(_numbers)}"
            provider = _Provider(allowed, address)
            self._running.configure_curve_callback(domain, provider)
            self._domains.add(domain)
            return domain

    def close(self, domain: str) -> None:
        """Remove the domain of a closed listener."""
        with self._lock:
            running = self._running
            if running is None or domain not in self._domains:
                return
            self._domains.discard(domain)
            running.certs.pop(domain, None)
            running.credentials_providers.pop(domain, None)

    def end(self) -> None:
        """Stop the thread before the interpreter exits, which would otherwise wait for it."""
        with self._lock:
            running, self._running = self._running, None
            self._domains.clear()
            if running is not None and self._pid == os.getpid():
                running.stop()

    def forked(self) -> None:
        """Reset in a forked child: it has no such thread, and the sockets are the parent's."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        if self._running is not None:
            self._orphans.append(self._running)
        self._running = None
        self._domains.clear()


_gate = _Gate()
os.register_at_fork(after_in_child=_gate.forked)
atexit.register(_gate.end)


def open_domain(allowed: AllowedKeys, address: Callable[[], str]) -> str:
    """Register a domain for a listener at `address` that accepts the clients in `allowed`.

    Returns its name, for `close_domain`. `address` is called when a refusal is logged, because the
    port may be known only after binding.
    """
    return _gate.open(allowed, address)


def close_domain(domain: str) -> None:
    """Remove the domain of a closed listener."""
    _gate.close(domain)


# -- sockets with safe options --------------------------------------------------------------------


# As plain integers: the library's enums cost microseconds at every `|` and `&`.
NOBLOCK = int(zmq.NOBLOCK)
SNDMORE = int(zmq.SNDMORE)
POLLIN = int(zmq.POLLIN)

LINGER_MS = 1_000  # time for a cleanly closed socket to send its messages
NEVER_RECONNECT_MS = 24 * 3_600_000
COPY_BELOW_BYTES = 131_072  # measured: below it, sharing a part with the I/O thread costs more


def open_router() -> zmq.Socket[bytes]:
    """Create a server's socket: it reports EAGAIN or EHOSTUNREACH instead of dropping messages."""
    socket = process_context().socket(zmq.ROUTER)
    socket.set(zmq.ROUTER_MANDATORY, 1)
    socket.set(zmq.ROUTER_HANDOVER, 0)
    _limit(socket)
    return socket


def open_dealer(timeouts: WireTimeouts = PATIENT) -> zmq.Socket[bytes]:
    """Create a client's socket for one connection; it never reconnects.

    The option IMMEDIATE would prevent queueing without an established connection, but it also
    discards replies that arrived just before a connection ended. Therefore the owner sends only
    while the connection is established, and closes the socket afterwards.
    """
    socket = process_context().socket(zmq.DEALER)
    socket.set(zmq.IPV6, 1)
    socket.set(zmq.RECONNECT_IVL, NEVER_RECONNECT_MS)
    _limit(socket)
    socket.set(zmq.SNDHWM, timeouts.pipe_messages)
    socket.set(zmq.HANDSHAKE_IVL, timeouts.greeting_ms)
    socket.set(zmq.HEARTBEAT_IVL, timeouts.probe_ms)
    socket.set(zmq.HEARTBEAT_TIMEOUT, timeouts.silence_ms)
    socket.set(zmq.CONNECT_TIMEOUT, timeouts.connect_ms)
    socket.set(zmq.TCP_MAXRT, timeouts.unread_ms)
    return socket


def _limit(socket: zmq.Socket[bytes]) -> None:
    socket.set(zmq.SNDHWM, limits.SOCKET_HWM_MESSAGES)
    socket.set(zmq.RCVHWM, limits.SOCKET_HWM_MESSAGES)
    socket.set(zmq.MAXMSGSIZE, limits.FRAME_SIZE_BYTES_MAX)
    socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS_MAX)
    socket.set(zmq.HEARTBEAT_IVL, PATIENT.probe_ms)
    socket.set(zmq.HEARTBEAT_TIMEOUT, PATIENT.silence_ms)
    socket.set(zmq.LINGER, LINGER_MS)


def has_input(socket: zmq.Socket[bytes]) -> bool:
    """Is there input? The call may consume a signal of the socket's descriptor."""
    return bool(int(socket.get(zmq.EVENTS)) & POLLIN)


def send_parts(send: Callable[..., Any], parts: Sequence[Buffer], flags: int) -> None:
    """Send one message by a socket's `send`; only its first part can be refused.

    Parts of 128 KiB and more are not copied: the caller must not write to them again.
    """
    more = flags | SNDMORE
    last = len(parts) - 1
    for index, part in enumerate(parts):
        send(part, flags if index == last else more, len(part) < COPY_BELOW_BYTES)


def receive_rest(receive: Callable[..., Any], head: zmq.Frame) -> tuple[list[Buffer], int]:
    """Return the parts of a message whose first part is `head`, and their total size.

    Bodies are not copied. If a message has too many parts, one more than the limit is kept, which
    is enough to refuse it.
    """
    parts: list[Buffer] = [head.bytes]
    size = len(head)
    part = head
    while part.more:
        part = receive(NOBLOCK, False)
        size += len(part)
        if len(parts) <= limits.FRAME_PARTS_MAX:
            parts.append(part.buffer)
    return parts, size


def endpoint_of(address: str) -> str:
    """Convert `host:port`, `[v6]:port` or `tcp://host:port` to an endpoint, or ConfigError."""
    host, port = split_address(address)
    return f"tcp://{join_address(host, port)}"


# -- keys -----------------------------------------------------------------------------------------

OVERHEAD_BYTES = 64
"""Upper bound of what encryption adds to a frame (33 bytes)."""


def arm_listener(
    socket: zmq.Socket[bytes], allowed: AllowedKeys, address: Callable[[], str]
) -> str:
    """Require keys in `allowed` on a socket, before `accept_from`; returns the domain to close.

    `address` returns where it listens, for the log.
    """
    domain = open_domain(allowed, address)
    _make_room(socket)
    socket.set(zmq.CURVE_SERVER, 1)
    socket.set(zmq.ZAP_DOMAIN, domain.encode())
    socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
    return domain


def accept_from(socket: zmq.Socket[bytes], listening: socketlib.socket, pair: KeyPair) -> int:
    """Accept the connections of a listening TCP socket, with this pair for its whole life.

    The library copies the options of a socket when it binds, so a later call with another pair does
    not change earlier ones. It owns the descriptor from then on, and closes it with `socket`, not
    before: unbinding would also close all connections that were accepted there. Returns the
    descriptor.
    """
    host, port = listening.getsockname()[:2]
    descriptor = listening.detach()
    socket.set(zmq.CURVE_SECRETKEY, pair.secret.encode())
    socket.set(zmq.USE_FD, descriptor)
    try:
        socket.bind(f"tcp://{join_address(host, port)}")
    except zmq.ZMQError:
        os.close(descriptor)
        raise
    return descriptor


def arm_dealer(socket: zmq.Socket[bytes], pair: KeyPair, server: str) -> None:
    """Set the keys of a socket before it connects: its own pair, and the server's public key."""
    _make_room(socket)
    socket.set(zmq.CURVE_SERVERKEY, server.encode())
    socket.set(zmq.CURVE_PUBLICKEY, pair.public.encode())
    socket.set(zmq.CURVE_SECRETKEY, pair.secret.encode())


def _make_room(socket: zmq.Socket[bytes]) -> None:
    """Raise the library's limit, which applies to frames as they travel, by the overhead."""
    socket.set(zmq.MAXMSGSIZE, limits.FRAME_SIZE_BYTES_MAX + OVERHEAD_BYTES)


# -- monitors: accepted, ready, refused, lost -----------------------------------------------------

# The library reconnects, performs handshakes and drops connections by itself; its monitor is the
# only source of these events. An event carries the file descriptor of its connection, by which a
# server finds the peer whose connection ended.


_WIRE_EVENTS: dict[int, WireEvent] = {
    zmq.EVENT_ACCEPTED: WireEvent.ACCEPTED,
    zmq.EVENT_HANDSHAKE_SUCCEEDED: WireEvent.READY,
    zmq.EVENT_CONNECT_RETRIED: WireEvent.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: WireEvent.BAD_GREETING,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: WireEvent.BAD_GREETING,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: WireEvent.NOT_LET_IN,
    zmq.EVENT_DISCONNECTED: WireEvent.LOST,
}


MECHANISM_MISMATCH = 0x11000002
"""Event value if the peer uses another mechanism (zmq.h); pyzmq has no name for it.

One side has CURVE keys and the other has none.
"""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """`descriptor` is the connection's file descriptor; meaningless for REFUSED and FAILED."""

    kind: WireEvent
    descriptor: int


class ZmqMonitor:
    """The event stream of one socket; `socket` is readable when there are events."""

    def __init__(self, watched: zmq.Socket[bytes]) -> None:
        mask = 0
        for event in _WIRE_EVENTS:
            mask |= event
        self._watched = watched
        self.socket: zmq.Socket[bytes] = watched.get_monitor_socket(mask)

    def read(self) -> list[ConnectionEvent]:
        """Return all events since the last call, oldest first; never blocks."""
        found: list[ConnectionEvent] = []
        while True:
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return found
            event = parse_monitor_message(parts)
            kind = _WIRE_EVENTS.get(int(event["event"]))
            if kind is WireEvent.BAD_GREETING and int(event["value"]) == MECHANISM_MISMATCH:
                kind = WireEvent.OTHER_MECHANISM
            if kind is not None:
                found.append(ConnectionEvent(kind, int(event["value"])))

    def close(self) -> None:
        """Stop monitoring; must be called before the monitored socket is closed."""
        self._watched.disable_monitor()
        self.socket.close(linger=0)


# -- readers on an event loop ---------------------------------------------------------------------


class EdgeReader:
    """Calls `look` while the socket has input. `look` returns True if it stopped at its limit.

    The descriptor of a ZeroMQ socket is edge-triggered: it becomes readable once when the socket's
    state changes, and reading *or sending* may consume that signal. Therefore the socket's EVENTS
    are checked again after each `look`, and code that sends outside of `look` calls `touched`,
    which checks once per loop iteration. A `look` that stopped at its own limit continues in the
    next iteration, so other callbacks run in between.
    """

    __slots__ = ("_descriptor", "_look", "_looking", "_loop", "_pending", "_socket")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        look: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._socket = socket
        self._look = look
        self._descriptor = int(socket.get(zmq.FD))
        self._pending: asyncio.Handle | None = None
        self._looking = False

    def start(self) -> None:
        """Start. Also calls `look` once, because an earlier signal is not repeated."""
        self._loop.add_reader(self._descriptor, self._run)
        self._again()

    def stop(self) -> None:
        """Stop calling `look`. May be called twice, and from within `look`."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = -1
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None

    def touched(self) -> None:
        """Check the socket again in this loop iteration, because it was sent to or queried."""
        if self._pending is None and not self._looking and self._descriptor >= 0:
            self._pending = self._loop.call_soon(self._check)

    def _again(self) -> None:
        if self._pending is None:
            self._pending = self._loop.call_soon(self._run)

    def _check(self) -> None:
        self._pending = None
        if has_input(self._socket):
            self._run()

    def _run(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self._looking = True
        try:
            more = self._look()
        finally:
            self._looking = False
        if self._descriptor < 0:  # `look` stopped it or closed its socket
            return
        if more or has_input(self._socket):
            self._again()
