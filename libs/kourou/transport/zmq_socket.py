"""The two kinds of socket Kourou uses, with the options that keep them honest under load.

Lives here: making and configuring ROUTER and DEALER sockets, and one message in or out.
May not live here: bursts, waiting, what a message means, addresses (kourou.transport.addresses).

ZeroMQ's defaults lie: a full ROUTER drops silently, frames are unlimited, a request queued during a
cut is delivered long after its sender gave up. Each option below removes one of these.

State: none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import zmq

from kourou.model import limits
from kourou.model.limits import HANDSHAKE_MS_MAX
from kourou.transport.addresses import split_address
from kourou.transport.zmq_context import process_context

HEARTBEAT_INTERVAL_MS = 2_000
HEARTBEAT_TIMEOUT_MS = 6_000
# As plain integers: the library's enums cost microseconds at every `|` and `&`.
NOBLOCK = int(zmq.NOBLOCK)
SNDMORE = int(zmq.SNDMORE)
POLLIN = int(zmq.POLLIN)

LINGER_MS = 1_000  # what was handed over may still leave when a socket is closed in peace
NEVER_RECONNECT_MS = 24 * 3_600_000
BACKLOG = 1_024
COPY_BELOW_BYTES = 131_072  # measured: below it, sharing a part with the I/O thread costs more

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client's connection waits for a server that is silent, in ms.

    `reconnect_ms_max`: between two attempts. `connect_ms`: for one attempt to connect, 0 as long as
    the system does. `unread_ms`: for the other machine to take what was sent, 0 as long as the
    system does. `greeting_ms`, `probe_ms` and `silence_ms` are for the process there: it greets,
    and it answers the probes that the library sends so often. `pipe_messages` may lie in the
    library.
    """

    reconnect_ms_max: int = 2_000
    connect_ms: int = 0
    unread_ms: int = 0
    greeting_ms: int = HANDSHAKE_MS_MAX
    probe_ms: int = HEARTBEAT_INTERVAL_MS
    silence_ms: int = HEARTBEAT_TIMEOUT_MS
    pipe_messages: int = limits.SOCKET_HWM_MESSAGES


PATIENT = Patience()
"""That of clients."""


def open_router() -> zmq.Socket[bytes]:
    """A server's socket: refuses (EAGAIN, EHOSTUNREACH) instead of dropping what it cannot send."""
    socket = process_context().socket(zmq.ROUTER)
    socket.set(zmq.ROUTER_MANDATORY, 1)
    socket.set(zmq.ROUTER_HANDOVER, 0)
    socket.set(zmq.BACKLOG, BACKLOG)
    _limit(socket)
    return socket


def open_dealer(patience: Patience = PATIENT) -> zmq.Socket[bytes]:
    """A client's socket for one connection: when that is lost, or refused, it never reconnects.

    IMMEDIATE would keep it from queueing for a connection that does not stand, but it also throws
    away answers that arrived just before a connection ended. So its owner sends only while the
    connection stands, and throws the socket away afterwards.
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
    socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
    socket.set(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    socket.set(zmq.LINGER, LINGER_MS)


def has_input(socket: zmq.Socket[bytes]) -> bool:
    """Is there something to receive? Asking may swallow a signal of the socket's descriptor."""
    return bool(int(socket.get(zmq.EVENTS)) & POLLIN)


def send_parts(send: Callable[..., Any], parts: Sequence[Buffer], flags: int) -> None:
    """Send one message by a socket's `send`; only its first part can be refused.

    Parts of 128 KiB and more are not copied: whoever passes one must not write to it again.
    """
    more = flags | SNDMORE
    last = len(parts) - 1
    for index, part in enumerate(parts):
        send(part, flags if index == last else more, len(part) < COPY_BELOW_BYTES)


def receive_rest(receive: Callable[..., Any], head: zmq.Frame) -> tuple[list[Buffer], int]:
    """The parts of a message whose first part is `head`, and their size; bodies are not copied.

    Of a message with too many parts, one more than the limit is kept, which is enough to refuse it.
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
    """`host:port`, `[v6]:port` or `tcp://host:port` as a ZeroMQ endpoint; else ConfigError."""
    host, port = split_address(address)
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
