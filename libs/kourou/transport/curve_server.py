"""An encrypted ZeroMQ listener: a libzmq ROUTER socket on an event loop.

It has the interface of kourou.transport.zmq_server.ZmqServer.

Receiving: all frames that have arrived (bounded per loop iteration) are passed on in one call,
since a batch is the unit of work. Bodies are not copied: they are views of the library's own
buffers.

Sending: never blocks and never drops silently. A peer whose pipe is full gets a bounded queue. A
peer that reads nothing for 5 s, or whose queue overflows, is disconnected and reported lost; so is
one that repeatedly sends frames that cannot be decoded.

Disconnects: the socket's monitor reports when a connection ends, and every message carries the file
descriptor of its connection. `on_disconnect` is called once per peer, after the last frames of that
peer.

Key changes: when the file of its key pair has changed, connections that begin from then on need the
new public key, and open ones go on. libzmq can neither change the pair of a listener nor close a
listener without the connections that it accepted. So the same socket gets one more listener, with
the new pair, on a second TCP socket of the same port, and the kernel passes all new connections to
the newest one. The earlier ones keep their descriptors, and get no connections any more.

Messages without an end: the library keeps all parts of a message until its last one, however many
they are, and tells of whole messages only. So the bytes that the system has received on each
connection are compared with what became messages. A connection is closed if its message is not
whole after DEADLINE_MS_MAX, or if all of them keep more than UNFINISHED_BYTES_MAX and its message
began first, as in transport.tcp_server.

State: soft.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket as socketlib
import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import zmq

from kourou.clock import Clock, SystemClock
from kourou.errors import BadRequest, DecodeError
from kourou.model import limits
from kourou.protocol.wire.frames import decode_frame
from kourou.runtime import Peer
from kourou.transport import curve_keys
from kourou.transport.addresses import (
    cannot_bind,
    join_address,
    listening_address,
    next_peer_id,
)
from kourou.transport.curve_keys import KeyPair, ServerCurve, refusal_of
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.tcp_link import Buffer
from kourou.transport.tcp_server import TcpServerStatistics, listening_socket
from kourou.transport.wire import FAILED, WireEvent
from kourou.transport.zmq_server import Inbound
from kourou.transport.zmq_socket import (
    NOBLOCK,
    SNDMORE,
    EdgeReader,
    ZmqMonitor,
    accept_from,
    arm_listener,
    close_domain,
    has_input,
    open_router,
    receive_rest,
    send_parts,
)

# -- connections ----------------------------------------------------------------------------------

# ZeroMQ identifies connections by a routing id that the server assigned (five bytes, the first is
# zero). A peer that chose its own id is refused, because a peer that takes another client's fixed
# id would lock that client out.
#
# Invariants: a file descriptor belongs to at most one link, so a new link on a descriptor proves
# that the former one is gone; `queued_bytes` is the total of `queue`; peer ids are never reused.


_ROUTING_ID_BYTES = 5


def server_assigned(routing_id: bytes) -> bool:
    """Was this routing id assigned by the server's socket?"""
    return len(routing_id) == _ROUTING_ID_BYTES and routing_id[0] == 0


class Link:
    """One peer's connection.

    `stuck_since_ms`: since when the queue has made no progress; 0 if it is empty. `spoke`: a whole
    message has arrived since the owner set it to False.
    """

    __slots__ = (
        "descriptor",
        "faults",
        "open",
        "peer",
        "queue",
        "queued_bytes",
        "routing_id",
        "spoke",
        "stuck_since_ms",
    )

    def __init__(self, routing_id: bytes, descriptor: int, peer: Peer) -> None:
        self.routing_id = routing_id
        self.descriptor = descriptor
        self.peer = peer
        self.queue: deque[tuple[Sequence[Buffer], int]] = deque()
        self.queued_bytes = 0
        self.stuck_since_ms = 0
        self.faults = 0
        self.open = True
        self.spoke = True

    def enqueue(self, parts: Sequence[Buffer], size: int, now_ms: int) -> bool:
        """Queue a message for later; False if the peer's queue is full."""
        if (
            len(self.queue) >= limits.SOCKET_HWM_MESSAGES
            or self.queued_bytes + size > limits.PEER_QUEUE_BYTES_MAX
        ):
            return False
        if not self.queue:
            self.stuck_since_ms = now_ms
        self.queue.append((parts, size))
        self.queued_bytes += size
        return True

    def sent_first(self, now_ms: int) -> None:
        """Remove the oldest message, which was sent: the peer is not stuck, even if others wait."""
        _, size = self.queue.popleft()
        self.queued_bytes -= size
        self.stuck_since_ms = now_ms if self.queue else 0


class LinkTable:
    """The links of one socket, indexed by routing id, by peer and by descriptor."""

    def __init__(self) -> None:
        self.by_routing_id: dict[bytes, Link] = {}
        self.by_peer: dict[int, Link] = {}
        self._by_descriptor: dict[int, Link] = {}
        self.established: set[int] = set()

    def __len__(self) -> int:
        return len(self.by_peer)

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self.by_peer.values()))

    @property
    def full(self) -> bool:
        """Is the maximum number of peers reached?"""
        return len(self.by_peer) >= limits.PEERS_MAX

    def add(self, link: Link) -> Link | None:
        """Add a link; returns the former link of its descriptor, which is therefore gone."""
        former = self._by_descriptor.get(link.descriptor)
        self.by_routing_id[link.routing_id] = link
        self.by_peer[link.peer.id] = link
        self._by_descriptor[link.descriptor] = link
        return former

    def on_descriptor(self, descriptor: int) -> Link | None:
        """Return the link whose connection has this descriptor."""
        return self._by_descriptor.get(descriptor)

    def remove(self, link: Link) -> bool:
        """Remove a link; False if it was removed before."""
        if not link.open:
            return False
        link.open = False
        del self.by_peer[link.peer.id]
        if self.by_routing_id.get(link.routing_id) is link:
            del self.by_routing_id[link.routing_id]
        if self._by_descriptor.get(link.descriptor) is link:
            del self._by_descriptor[link.descriptor]
        link.queue.clear()
        link.queued_bytes = 0
        return True


def far_end(descriptor: int) -> tuple[str, int] | None:
    """Return the peer's address for a connection's descriptor; None if it is not a connection."""
    return _on_duplicate(descriptor, None)


def cut(descriptor: int, address: tuple[str, int]) -> bool:
    """Shut the connection down, if `descriptor` still is the connection from `address`.

    ZeroMQ has no call to close one connection of a ROUTER. Its own reader notices the shutdown and
    closes the connection, which frees what was queued for a peer that does not read.
    """
    return _on_duplicate(descriptor, address) is not None


def _on_duplicate(descriptor: int, address: tuple[str, int] | None) -> tuple[str, int] | None:
    """Query a duplicate, because the original may be closed at any moment.

    With `address`, also shut it down if that is its peer.
    """
    try:
        number = os.dup(descriptor)
    except OSError:
        return None
    try:
        duplicate = socketlib.socket(fileno=number)
    except OSError:
        os.close(number)
        return None
    with duplicate:
        try:
            found = duplicate.getpeername()
            where = (str(found[0]), int(found[1]))
            if address is not None:
                if where != address:
                    return None
                duplicate.shutdown(socketlib.SHUT_RDWR)
        except (OSError, IndexError, ValueError):  # no longer a socket, or without an address
            return None
        return where


# -- one port, several listening sockets -----------------------------------------------------------

# See socket(7). The sockets of a port are numbered in the order in which they began to listen, and
# none of them is closed before all are. The kernel asks a program of classic BPF for the number of
# the socket that gets a new connection; no privilege is needed for that.

SO_ATTACH_REUSEPORT_CBPF = 51
_BPF_RETURN_CONSTANT = 0x06


def share_port(descriptor: int) -> None:
    """Let further sockets of this user listen on the port of a listening socket. Raises OSError."""
    with socketlib.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_REUSEPORT, 1)


def prefer(listening: socketlib.socket, number: int) -> None:
    """Pass all new connections of its port to this socket; its number counts from 0.

    Raises OSError.
    """
    instruction = array("B", struct.pack("=HBBI", _BPF_RETURN_CONSTANT, 0, 0, number))
    program = struct.pack("@HP", 1, instruction.buffer_info()[0])  # the kernel copies it
    listening.setsockopt(socketlib.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)


_BYTES_RECEIVED = struct.Struct("@Q")
_BYTES_RECEIVED_AT = 128
"""Of tcpi_bytes_received in Linux's struct tcp_info (linux/tcp.h)."""


def bytes_received(descriptor: int) -> int | None:
    """Return how many bytes a connection has received so far; None if it is not a connection."""
    size = _BYTES_RECEIVED_AT + _BYTES_RECEIVED.size
    tcp = socketlib.IPPROTO_TCP
    try:
        socket = socketlib.socket(socketlib.AF_INET, socketlib.SOCK_STREAM, tcp, descriptor)
    except OSError:
        return None
    try:
        info = socket.getsockopt(tcp, socketlib.TCP_INFO, size)
    except OSError:
        return None
    finally:
        socket.detach()  # the library closes it
    found: int = _BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0]
    return found


HEARTBEAT_BYTES_S = 1_024
"""What a connection may receive in a second without a message: heartbeats take far less."""

COUNTED_BYTES_MIN = 65_536
"""Less of an unfinished message is not counted: a handshake is not one, either."""


class Inflow:
    """What a connection has received since its last whole message, apart from heartbeats.

    `began_ms`: when that began. `address`: the peer's, because descriptors are used again.
    """

    __slots__ = ("_base", "address", "began_ms", "unfinished")

    def __init__(self, address: tuple[str, int] | None, received: int, now_ms: int) -> None:
        self.address = address
        self.restart(received, now_ms)

    def restart(self, received: int, now_ms: int) -> None:
        """Note that nothing is unfinished, as far as is known."""
        self._base = received
        self.began_ms = now_ms
        self.unfinished = 0

    def note(self, received: int, now_ms: int) -> None:
        """Note how many bytes the connection has received in all; no message became whole."""
        heartbeats = HEARTBEAT_BYTES_S * (now_ms - self.began_ms) // 1_000
        self.unfinished = received - self._base - heartbeats
        if self.unfinished <= 0:
            self.restart(received, now_ms)

    @property
    def counted(self) -> int:
        """The bytes, 0 if they are too few to be more than a handshake."""
        return self.unfinished if self.unfinished >= COUNTED_BYTES_MIN else 0


_log = logging.getLogger("kourou.transport")

SWEEP_S = 1.0
"""Interval of the search for messages without an end; it looks at each connection once."""

SWEPT_A_TURN = 500
"""Connections that are looked at before other callbacks run: 2 ms."""

RETRY_INTERVAL_S = 0.05  # retry interval for full pipes, in addition to the socket's events


class CurveServer:
    """Listens on one address. All calls must be made on the thread of the loop of `start`."""

    def __init__(
        self,
        bind_address: str,
        on_frames: Callable[[list[Inbound]], None],
        on_disconnect: Callable[[Peer], None],
        *,
        listener: str = "internal",
        curve: ServerCurve,
        clock: Clock | None = None,
    ) -> None:
        """Any address may be bound, because only clients whose keys `curve` allows can connect."""
        self.host, self.port = listening_address(bind_address, insecure_network=True)
        self._curve = curve
        self._domain = ""
        self.listener = listener
        self._on_frames = on_frames
        self._on_disconnect = on_disconnect
        self._clock: Clock = clock or SystemClock()
        self._complaints = RateLimitedLog(_log, self._clock)
        self._links = LinkTable()
        self._lost: list[Link] = []
        self._banned: set[bytes] = set()
        self._blocked: dict[int, Link] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._pair = curve.own.pair
        self._listening: list[int] = []
        self._check_later: asyncio.TimerHandle | None = None
        self._paused = False
        self._frames_in = self._frames_out = self._bytes_in = self._bytes_out = 0
        self._undecodable = self._refused = self._unroutable = self._cut = 0
        self._inflows: dict[int, Inflow] = {}
        self._unswept: list[int] = []
        self._unfinished_bytes = 0
        self._drained = False
        self._sweep_later: asyncio.TimerHandle | None = None
        self._socket: zmq.Socket[bytes] | None = None

    # -- lifecycle --------------------------------------------------------------------------------

    def start(self) -> None:
        """Bind and start to receive on the running loop. Raises ConfigError if it cannot bind."""
        self._loop = asyncio.get_running_loop()
        try:
            listening = listening_socket(self.host, self.port)
        except OSError as error:
            raise cannot_bind(self.host, self.port, error) from error
        self.port = int(listening.getsockname()[1])
        socket = open_router()
        socket.set(zmq.IPV6, int(":" in self.host))
        self._monitor = ZmqMonitor(socket)
        self._domain = arm_listener(socket, self._curve.allowed, lambda: self.address)
        self._listening.append(accept_from(socket, listening, self._pair))
        self._socket = self._open = socket
        self._send_part = socket.send
        self._reader = EdgeReader(self._loop, socket, self._receive)
        self._monitor_reader = EdgeReader(self._loop, self._monitor.socket, self._read_monitor)
        self._reader.start()
        self._monitor_reader.start()
        self._check_later = self._loop.call_later(curve_keys.CHECK_S, self._check_pair)
        self._sweep_later = self._loop.call_later(SWEEP_S, self._sweep)

    def pause(self) -> None:
        """Stop receiving (to drain before a stop); replies are still sent."""
        self._paused = True
        self._reader.stop()

    def close(self) -> None:
        """Unbind. Messages that the library already holds may still be sent for a moment."""
        if self._socket is None:
            return
        self._reader.stop()
        self._monitor_reader.stop()
        for timer in (self._retry, self._check_later, self._sweep_later):
            if timer is not None:
                timer.cancel()
        self._monitor.close()
        self._socket.close()
        self._socket = None
        self._disarm()

    def _disarm(self) -> None:
        if self._domain:
            close_domain(self._domain)
            self._domain = ""

    # -- the key pair -----------------------------------------------------------------------------

    def _check_pair(self) -> None:
        self._check_later = self._loop.call_later(curve_keys.CHECK_S, self._check_pair)
        pair = self._curve.own.pair
        if pair == self._pair or self._paused:
            return
        try:
            self._change_pair(pair)
        except OSError as error:
            self._complaints.warning(
                "curve-key-unchanged: %(address)s continues with its earlier key pair: %(error)s; "
                "restart to change it",
                {"address": self.address, "error": error.strerror},
            )
        else:
            _log.info(
                "curve-key-changed: new connections at %(address)s need its new public key "
                "%(public_key)s",
                {"address": self.address, "public_key": pair.public},
            )

    def _change_pair(self, pair: KeyPair) -> None:
        """Accept new connections with this pair, and none with an earlier one. Raises OSError."""
        if len(self._listening) >= limits.CURVE_PAIRS_MAX:
            raise OSError(errno.EMFILE, f"there were {len(self._listening)} pairs since its start")
        share_port(self._listening[0])
        listening = listening_socket(self.host, self.port, shares_port=True)
        try:
            prefer(listening, len(self._listening))
        except OSError:
            listening.close()
            raise
        self._listening.append(accept_from(self._open, listening, pair))
        self._pair = pair
        self._reader.touched()

    @property
    def address(self) -> str:
        """The bound address, as `host:port`."""
        return join_address(self.host, self.port)

    def statistics(self) -> TcpServerStatistics:
        """Return the counters and gauges of this socket."""
        return TcpServerStatistics(
            peers=len(self._links),
            frames_in=self._frames_in,
            frames_out=self._frames_out,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            frames_undecodable=self._undecodable,
            peers_refused=self._refused,
            peers_idle=0,
            peers_cut=self._cut,
            frames_unroutable=self._unroutable,
            queued_bytes=sum(link.queued_bytes for link in self._blocked.values()),
            unfinished_bytes=self._unfinished_bytes,
        )

    # -- receiving --------------------------------------------------------------------------------

    def _receive(self) -> bool:
        """Pass on the frames that have arrived; True if it stopped at its limit."""
        batch: list[Inbound] = []
        more = self._fill(batch)
        if batch:
            self._frames_in += len(batch)
            self._on_frames(batch)
        if self._blocked:
            self._retry_blocked()
        if not more:
            self._report_lost()
        return more

    def _fill(self, batch: list[Inbound]) -> bool:
        receive = self._open.recv
        links = self._links.by_routing_id
        budget = limits.FRAME_BYTES_PER_TURN_MAX
        try:
            for _ in range(limits.FRAMES_PER_TURN_MAX):
                routing_id = receive(NOBLOCK)
                head: zmq.Frame = receive(NOBLOCK, False)
                parts, size = receive_rest(receive, head)
                self._bytes_in += size
                link = links.get(routing_id) or self._welcome(routing_id, head)
                if link is None or link.faults >= limits.PEER_FAULTS_MAX:
                    self._refused += 1
                else:
                    link.spoke = True
                    try:
                        batch.append(Inbound(link.peer, decode_frame(parts)))
                    except (DecodeError, BadRequest) as error:
                        self._complain(link, str(error))
                budget -= size
                if budget < 0:
                    return True
        except zmq.Again:
            self._drained = True
            return False
        return True

    def _welcome(self, routing_id: bytes, head: zmq.Frame) -> Link | None:
        """Create a link at the first frame of a connection; None if the peer is refused."""
        if routing_id in self._banned:
            return None
        if not server_assigned(routing_id):
            self._complaints.warning(
                "routing-id-refused: refusing a peer that chose its own routing id"
            )
            return None
        if self._links.full:
            self._complaints.warning(
                "peer-refused: refusing a new peer: %(peers)d are connected",
                {"peers": len(self._links)},
            )
            return None
        self._note_monitor()  # so that `established` includes this connection
        descriptor = int(head.get(zmq.SRCFD))
        host = str(head.get("Peer-Address"))
        address = far_end(descriptor) if descriptor in self._links.established else None
        if address is None or address[0] != host:
            address = (host, 0)
        # libzmq sets it to the key that the handshake proved; a peer cannot choose it here.
        key = str(head.get("User-Id"))
        peer = Peer(next_peer_id(), "zmq", address, self.listener, key)
        link = Link(routing_id, descriptor, peer)
        former = self._links.add(link)
        if former is not None:
            self._lost.append(former)
        if descriptor not in self._links.established:  # it sent something and disconnected
            self._lost.append(link)
        return link

    def _complain(self, link: Link, reason: str) -> None:
        self._undecodable += 1
        link.faults += 1
        self._complaints.warning(
            "frame-dropped: dropping a frame from %(peer)s: %(error)s",
            {"peer": link.peer, "error": reason},
            kind=link.peer.address[0],
        )
        if link.faults == limits.PEER_FAULTS_MAX:
            if len(self._banned) >= limits.PEERS_MAX:
                self._banned.clear()
            self._banned.add(link.routing_id)  # its earlier frames may still be in the socket
            self._cut_off(link, f"{link.faults} undecodable frames")

    # -- disconnects ------------------------------------------------------------------------------

    def _read_monitor(self) -> bool:
        self._note_monitor()
        if self._lost:
            if self._paused:
                self._report_lost()
            else:
                self._reader.touched()  # their last frames first
                self._loop.call_soon(self._report_if_idle)
        return False

    def _note_monitor(self) -> None:
        for event in self._monitor.read():
            if event.kind is WireEvent.ACCEPTED:
                self._links.established.add(event.descriptor)
                self._inflows.pop(event.descriptor, None)
            elif event.kind is WireEvent.LOST:
                self._links.established.discard(event.descriptor)
                self._inflows.pop(event.descriptor, None)
                link = self._links.on_descriptor(event.descriptor)
                if link is not None:
                    self._lost.append(link)
            elif event.kind in FAILED and (why := refusal_of(event.kind)):
                self._complaints.warning(
                    "handshake-failed: refused at %(address)s: %(reason)s",
                    {"address": self.address, "reason": why},
                    kind=why,
                )

    def _report_if_idle(self) -> None:
        """Report lost peers, unless frames are waiting; then `_receive` reports them."""
        if self._socket is None:
            return
        if self._paused or not has_input(self._open):
            self._report_lost()
        else:
            self._reader.touched()

    def _report_lost(self) -> None:
        while self._lost:
            self._lose(self._lost.pop())

    def _lose(self, link: Link) -> None:
        if self._links.remove(link):
            self._blocked.pop(link.peer.id, None)
            self._on_disconnect(link.peer)

    def _cut_off(self, link: Link, reason: str) -> None:
        """Close a peer's connection; its loss is reported like any other."""
        self._note_cut(str(link.peer), reason)
        cut(link.descriptor, link.peer.address)
        self._lost.append(link)
        self._loop.call_soon(self._report_lost)

    def _note_cut(self, peer: str, reason: str) -> None:
        self._cut += 1
        self._complaints.warning(
            "connection-closed: closing the connection of %(peer)s: %(reason)s",
            {"peer": peer, "reason": reason},
        )

    # -- messages without an end ------------------------------------------------------------------

    def _sweep(self) -> None:
        """Look at some connections; after the last one, close those whose message never ends."""
        if not self._unswept:
            if not self._all_taken():
                self._sweep_later = self._loop.call_later(SWEEP_S, self._sweep)
                return
            self._unswept = list(self._links.established)
        now_ms = self._clock.monotonic_ms()
        for descriptor in self._unswept[-SWEPT_A_TURN:]:
            self._look_at(descriptor, now_ms)
        del self._unswept[-SWEPT_A_TURN:]
        if self._unswept:
            self._sweep_later = self._loop.call_later(0, self._sweep)
            return
        self._cut_endless(now_ms)
        self._sweep_later = self._loop.call_later(SWEEP_S, self._sweep)

    def _all_taken(self) -> bool:
        """Has every whole message been taken from the library, now or since the last call?"""
        drained, self._drained = self._drained, False
        if self._paused:
            return False
        waiting = has_input(self._open)
        self._reader.touched()
        return drained or not waiting

    def _look_at(self, descriptor: int, now_ms: int) -> None:
        received = bytes_received(descriptor)
        if received is None or descriptor not in self._links.established:
            self._inflows.pop(descriptor, None)
            return
        link = self._links.on_descriptor(descriptor)
        spoke = link is not None and link.spoke
        if link is not None:
            link.spoke = False
        inflow = self._inflows.get(descriptor)
        if inflow is None:
            self._inflows[descriptor] = Inflow(far_end(descriptor), received, now_ms)
        elif spoke:
            inflow.restart(received, now_ms)
        else:
            inflow.note(received, now_ms)

    def _cut_endless(self, now_ms: int) -> None:
        """Close connections whose message is too old; and if all keep too much, the oldest."""
        kept = {at: one for at, one in self._inflows.items() if one.counted}
        total = sum(one.counted for one in kept.values())
        for descriptor, one in sorted(kept.items(), key=lambda item: item[1].began_ms):
            age_ms = now_ms - one.began_ms
            if total > limits.UNFINISHED_BYTES_MAX:
                self._cut_sender(
                    descriptor, one, f"messages that are not whole yet take {total} bytes"
                )
            elif age_ms >= limits.DEADLINE_MS_MAX:
                self._cut_sender(descriptor, one, f"its message is not whole after {age_ms} ms")
            else:
                continue
            total -= one.counted
            del self._inflows[descriptor]
        self._unfinished_bytes = total

    def _cut_sender(self, descriptor: int, inflow: Inflow, reason: str) -> None:
        """Close a connection, which may have no link because no message of it was ever whole."""
        link = self._links.on_descriptor(descriptor)
        if link is not None:
            self._cut_off(link, reason)
        elif inflow.address is not None and cut(descriptor, inflow.address):
            host, port = inflow.address
            self._note_cut(f"zmq:{host}:{port}", reason)

    # -- sending ----------------------------------------------------------------------------------

    def send(self, peer: Peer, parts: Sequence[Buffer]) -> bool:
        """Send one message. False if the peer is gone; its loss is, or will be, reported.

        Buffers of 128 KiB and more are not copied: the caller must not write to them again.
        """
        link = self._links.by_peer.get(peer.id)
        if link is None:
            self._unroutable += 1
            return False
        size = sum(map(len, parts))
        if not link.queue:
            try:
                self._transmit(link, parts)
            except zmq.Again:
                pass
            except zmq.ZMQError as error:
                return self._unreachable(link, error)
            else:
                self._frames_out += 1
                self._bytes_out += size
                self._reader.touched()
                return True
        return self._keep(link, parts, size)

    def _transmit(self, link: Link, parts: Sequence[Buffer]) -> None:
        """Put a message into the peer's pipe; only its first part can be refused."""
        self._send_part(link.routing_id, SNDMORE | NOBLOCK)
        send_parts(self._send_part, parts, NOBLOCK)

    def _keep(self, link: Link, parts: Sequence[Buffer], size: int) -> bool:
        if not link.enqueue(parts, size, self._clock.monotonic_ms()):
            self._cut_off(link, f"{len(link.queue)} answers ({link.queued_bytes} bytes) wait")
            return False
        self._blocked[link.peer.id] = link
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_INTERVAL_S, self._retry_later)
        return True

    def _unreachable(self, link: Link, error: zmq.ZMQError) -> bool:
        if error.errno != zmq.EHOSTUNREACH:
            raise error
        self._unroutable += 1
        self._lost.append(link)
        self._loop.call_soon(self._report_lost)
        return False

    def _retry_later(self) -> None:
        self._retry = None
        self._retry_blocked()
        self._reader.touched()
        if self._blocked:
            self._retry = self._loop.call_later(RETRY_INTERVAL_S, self._retry_later)

    def _retry_blocked(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for link in list(self._blocked.values()):
            try:
                while link.queue:
                    parts, size = link.queue[0]
                    self._transmit(link, parts)
                    link.sent_first(now_ms)
                    self._frames_out += 1
                    self._bytes_out += size
            except zmq.Again:
                if now_ms - link.stuck_since_ms >= limits.PEER_STUCK_MS_MAX:
                    self._blocked.pop(link.peer.id)
                    self._cut_off(link, f"it has read nothing for {limits.PEER_STUCK_MS_MAX} ms")
            except zmq.ZMQError as error:
                self._blocked.pop(link.peer.id)
                self._unreachable(link, error)
            else:
                self._blocked.pop(link.peer.id)
