"""The two kinds of libzmq socket that Kourou uses, with safe options.

ZeroMQ's defaults are unsafe: a full ROUTER drops messages silently, frame sizes are unlimited, and
a request queued during a partition is delivered long after its sender gave up. Each option below
removes one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import zmq

from kourou.model import limits
from kourou.model.limits import HANDSHAKE_MS_MAX
from kourou.transport.addresses import join_address, split_address
from kourou.transport.curve import ClientCurve, ServerCurve
from kourou.transport.curve_gate import open_domain
from kourou.transport.tcp_link import Buffer
from kourou.transport.wire import PATIENT, Patience
from kourou.transport.zmq_context import process_context

# As plain integers: the library's enums cost microseconds at every `|` and `&`.
NOBLOCK = int(zmq.NOBLOCK)
SNDMORE = int(zmq.SNDMORE)
POLLIN = int(zmq.POLLIN)

LINGER_MS = 1_000  # time for a cleanly closed socket to send its messages
NEVER_RECONNECT_MS = 24 * 3_600_000
BACKLOG = 1_024
COPY_BELOW_BYTES = 131_072  # measured: below it, sharing a part with the I/O thread costs more


def open_router() -> zmq.Socket[bytes]:
    """Create a server's socket: it reports EAGAIN or EHOSTUNREACH instead of dropping messages."""
    socket = process_context().socket(zmq.ROUTER)
    socket.set(zmq.ROUTER_MANDATORY, 1)
    socket.set(zmq.ROUTER_HANDOVER, 0)
    socket.set(zmq.BACKLOG, BACKLOG)
    _limit(socket)
    return socket


def open_dealer(patience: Patience = PATIENT) -> zmq.Socket[bytes]:
    """Create a client's socket for one connection; it never reconnects.

    The option IMMEDIATE would prevent queueing without an established connection, but it also
    discards replies that arrived just before a connection ended. Therefore the owner sends only
    while the connection is established, and closes the socket afterwards.
    """
    socket = process_context().socket(zmq.DEALER)
    socket.set(zmq.IPV6, 1)
    socket.set(zmq.RECONNECT_IVL, NEVER_RECONNECT_MS)
    _limit(socket)
    socket.set(zmq.SNDHWM, patience.pipe_messages)
    socket.set(zmq.HANDSHAKE_IVL, patience.greeting_ms)
    socket.set(zmq.HEARTBEAT_IVL, patience.probe_ms)
    socket.set(zmq.HEARTBEAT_TIMEOUT, patience.silence_ms)
    socket.set(zmq.CONNECT_TIMEOUT, patience.connect_ms)
    socket.set(zmq.TCP_MAXRT, patience.unread_ms)
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


def arm_listener(socket: zmq.Socket[bytes], curve: ServerCurve, address: Callable[[], str]) -> str:
    """Set the keys of a socket before it is bound; returns the domain for `close_domain`.

    `address` returns where it listens, for the log.
    """
    domain = open_domain(curve.allowed, address)
    _make_room(socket)
    socket.set(zmq.CURVE_SERVER, 1)
    socket.set(zmq.CURVE_SECRETKEY, curve.pair.secret.encode())
    socket.set(zmq.ZAP_DOMAIN, domain.encode())
    socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
    return domain


def arm_dealer(socket: zmq.Socket[bytes], curve: ClientCurve, address: str) -> None:
    """Set the keys of a socket before it connects.

    Raises ConfigError if no key is known for `address`. Key files are read again if they have
    changed, so the next attempt finds a key that was added.
    """
    _make_room(socket)
    socket.set(zmq.CURVE_SERVERKEY, curve.servers.of(address).encode())
    socket.set(zmq.CURVE_PUBLICKEY, curve.pair.public.encode())
    socket.set(zmq.CURVE_SECRETKEY, curve.pair.secret.encode())


def _make_room(socket: zmq.Socket[bytes]) -> None:
    """Raise the library's limit, which applies to frames as they travel, by the overhead."""
    socket.set(zmq.MAXMSGSIZE, limits.FRAME_SIZE_BYTES_MAX + OVERHEAD_BYTES)
