"""A TCP listener on an event loop that receives frames in batches and sends replies.

Receiving: each readable connection is read once per loop iteration, and the frames of all
connections are passed on in one call, since a batch is the unit of work.

Sending: never blocks and never drops silently. All messages sent within a loop iteration leave in
one system call per connection. A peer that does not read gets a bounded queue; one that reads
nothing for 5 s, or whose queue overflows, is disconnected and reported lost.

Disconnects: `on_disconnect` is called once per peer, after the last frames of that peer.

Full: at PEERS_MAX connections, the oldest one that has not sent a frame yet makes room for a new
one; if there is none, the new one is refused. So masses of silent connections keep no client out:
a client sends its first frame at once.

State: soft. All calls must be made on the thread of the loop of `start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import select
import socket as socketlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from kourou.clock import Clock, SystemClock
from kourou.errors import DecodeError
from kourou.model import limits
from kourou.runtime import Peer
from kourou.transport.addresses import (
    CLEAR_TEXT_WARNING_S,
    cannot_bind,
    is_loopback,
    join_address,
    listening_address,
    next_peer_id,
)
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.tcp_link import READ_BYTES, Buffer, TcpLink

_log = logging.getLogger("kourou.transport")

SWEEP_S = 1.0
"""Interval of the check for idle and stuck connections."""

ACCEPT_RETRY_S = 0.5
"""Pause before accepting again after the system ran out of file descriptors."""

ACCEPTS_A_TURN = 64
BACKLOG = 1_024
FLUSH_AT_BYTES = 1 << 20
"""A peer's queue of this size is written without waiting for the end of the loop iteration."""

LINGER_S = 1.0
"""Maximum time that a closing listener waits for peers to receive what was sent."""

LinkT = TypeVar("LinkT", bound=TcpLink[Any])
FrameT = TypeVar("FrameT")
InboundT = TypeVar("InboundT")

_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def listening_socket(host: str, port: int, *, shares_port: bool = False) -> socketlib.socket:
    """Return a socket that listens there. Raises OSError.

    With `shares_port` other sockets of this user that share the port may listen there, too.
    """
    family = socketlib.AF_INET6 if ":" in host else socketlib.AF_INET
    listening = socketlib.socket(family, socketlib.SOCK_STREAM | socketlib.SOCK_NONBLOCK)
    try:
        listening.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_REUSEADDR, 1)
        if shares_port:
            listening.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_REUSEPORT, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


@dataclass(frozen=True, slots=True)
class TcpServerStatistics:
    """Counters since the start, and current gauges."""

    peers: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    frames_undecodable: int
    peers_refused: int
    peers_idle: int
    peers_cut: int
    frames_unroutable: int
    queued_bytes: int
    unfinished_bytes: int
    peers_tls: int = 0
    tls_handshakes_failed: int = 0


class TcpServer(ABC, Generic[LinkT, FrameT, InboundT]):
    """Listens on one address; a subclass implements the protocol.

    LinkT: a connection. FrameT: a frame of its byte stream. InboundT: an item for `on_frames`.
    """

    protocol: ClassVar[str]
    """Name of the transport in peers and statistics."""

    def __init__(
        self,
        bind_address: str,
        on_frames: Callable[[list[InboundT]], None],
        on_disconnect: Callable[[Peer], None],
        *,
        listener: str = "internal",
        insecure_network: bool = False,
        encrypted: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`encrypted`: clear text is not accepted, so any address may be bound."""
        self.host, self.port = listening_address(
            bind_address, insecure_network=insecure_network or encrypted
        )
        self.listener = listener
        self._encrypted = encrypted
        self._on_frames = on_frames
        self._on_disconnect = on_disconnect
        self._clock: Clock = clock or SystemClock()
        self._complaints = RateLimitedLog(_log, self._clock)
        self._links: dict[int, LinkT] = {}
        self._silent: dict[int, None] = {}  # ids of links that have sent no frame, the oldest first
        self._batch: list[InboundT] = []
        self._batch_bytes = 0
        self._unfinished_bytes = 0
        self._lost: list[LinkT] = []
        self._dirty: dict[int, LinkT] = {}
        self._blocked: dict[int, LinkT] = {}
        self._due: asyncio.Handle | None = None
        self._flush_due: asyncio.Handle | None = None
        self._sweep_later: asyncio.TimerHandle | None = None
        self._accept_later: asyncio.TimerHandle | None = None
        self._warning: asyncio.TimerHandle | None = None
        self._delivering = False
        self._paused = False
        self._socket: socketlib.socket | None = None
        self._frames_in = self._frames_out = self._bytes_in = self._bytes_out = 0
        self._undecodable = self._refused = self._idle = self._cut = self._unroutable = 0

    # -- lifecycle --------------------------------------------------------------------------------

    def start(self) -> None:
        """Bind and start to accept on the running loop. Raises ConfigError if it cannot bind."""
        self._loop = asyncio.get_running_loop()
        try:
            listening = listening_socket(self.host, self.port)
        except OSError as error:
            raise cannot_bind(self.host, self.port, error) from error
        self.port = int(listening.getsockname()[1])
        self._socket = listening
        self._loop.add_reader(listening.fileno(), self._accept)
        self._sweep_later = self._loop.call_later(SWEEP_S, self._sweep)
        if not self._encrypted and not is_loopback(self.host):
            self._warn_clear_text()

    def pause(self) -> None:
        """Stop accepting connections and passing on frames (a stop begins); replies are still sent.

        Frames that arrive are dropped. Their senders get UnknownOutcome when the connection closes.
        """
        if self._paused:
            return
        self._paused = True
        self._batch.clear()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())

    def close(self) -> None:
        """Close all connections, after waiting up to LINGER_S until queued bytes are sent."""
        if self._socket is None:
            return
        self.pause()
        for timer in (
            self._due,
            self._flush_due,
            self._sweep_later,
            self._accept_later,
            self._warning,
        ):
            if timer is not None:
                timer.cancel()
        self._flush()
        self._linger()
        for link in list(self._links.values()):
            self._shut(link)
        self._socket.close()
        self._socket = None

    def _linger(self) -> None:
        end_ms = self._clock.monotonic_ms() + int(LINGER_S * 1_000)
        poll = select.poll()
        waiting = {link.socket.fileno(): link for link in self._blocked.values()}
        for descriptor in waiting:
            poll.register(descriptor, select.POLLOUT)
        while waiting and (left_ms := end_ms - self._clock.monotonic_ms()) > 0:
            ready = poll.poll(left_ms)
            if not ready:
                return
            for descriptor, _ in ready:
                link = waiting[descriptor]
                with contextlib.suppress(OSError):  # the peer is gone: nothing more can be sent
                    link.write(0)
                    if link.queue:
                        continue
                poll.unregister(descriptor)
                del waiting[descriptor]

    @property
    def address(self) -> str:
        """The bound address, as `host:port`."""
        return join_address(self.host, self.port)

    def statistics(self) -> TcpServerStatistics:
        """Return the counters and gauges of this listener."""
        return TcpServerStatistics(
            peers=len(self._links),
            frames_in=self._frames_in,
            frames_out=self._frames_out,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            frames_undecodable=self._undecodable,
            peers_refused=self._refused,
            peers_idle=self._idle,
            peers_cut=self._cut,
            frames_unroutable=self._unroutable,
            queued_bytes=sum(link.queued_bytes for link in self._links.values()),
            unfinished_bytes=self._unfinished_bytes,
        )

    def _warn_clear_text(self) -> None:
        _log.warning(
            "clear-text-served: listening on %(address)s in clear text: everyone who can reach it "
            "may read and send",
            {"address": self.address},
        )
        self._warning = self._loop.call_later(CLEAR_TEXT_WARNING_S, self._warn_clear_text)

    # -- the protocol -----------------------------------------------------------------------------

    @abstractmethod
    def _make_link(self, socket: socketlib.socket, peer: Peer) -> LinkT:
        """Create the link of an accepted connection; its queue holds the server's greeting."""

    @abstractmethod
    def _inbound(self, link: LinkT, frames: list[FrameT]) -> list[InboundT]:
        """Convert the received frames into items for `on_frames`."""

    def _ended(self, link: LinkT) -> None:
        """Called when the peer closed the connection; a subclass may log the reason."""

    @abstractmethod
    def _look_at(self, link: LinkT, now_ms: int) -> None:
        """Called every SWEEP_S for each connection: close it, or send a heartbeat."""

    # -- accepting --------------------------------------------------------------------------------

    def _accept(self) -> None:
        listening = self._socket
        assert listening is not None
        for _ in range(ACCEPTS_A_TURN):
            try:
                socket, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                self._rest(error)
                return
            if len(self._links) >= limits.PEERS_MAX and not self._make_room():
                self._refused += 1
                socket.close()
                self._complaints.warning(
                    "peer-refused: refusing a new peer: %(peers)d are connected",
                    {"peers": len(self._links)},
                )
                continue
            self._welcome(socket, address)

    def _make_room(self) -> bool:
        """Close the oldest connection that has not sent a frame; False if there is none."""
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return False
        link = self._links[oldest]
        self._note_cut(link, "it has sent nothing, and another one needs its place")
        self._shut(link)
        self._on_disconnect(link.peer)
        return True

    def _rest(self, error: OSError) -> None:
        """Pause accepting: no connection can be accepted now. Existing connections continue."""
        if error.errno not in _NO_DESCRIPTOR:
            raise error
        self._refused += 1
        self._complaints.warning(
            "accept-failed: connections cannot be accepted: %(error)s", {"error": error.strerror}
        )
        assert self._socket is not None
        self._loop.remove_reader(self._socket.fileno())
        self._accept_later = self._loop.call_later(ACCEPT_RETRY_S, self._accept_again)

    def _accept_again(self) -> None:
        self._accept_later = None
        if self._socket is not None and not self._paused:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _welcome(self, socket: socketlib.socket, address: tuple[str, int]) -> None:
        socket.setblocking(False)
        with contextlib.suppress(OSError):  # it is gone; the first read reports that
            socket.setsockopt(socketlib.IPPROTO_TCP, socketlib.TCP_NODELAY, 1)
        where = (str(address[0]), int(address[1]))
        peer = Peer(next_peer_id(), self.protocol, where, self.listener)
        link = self._make_link(socket, peer)
        self._links[peer.id] = link
        self._silent[peer.id] = None
        self._listen_to(link)
        if link.queue:
            self._mark_dirty(link)

    def _listen_to(self, link: LinkT) -> None:
        """Start to read a connection."""
        self._loop.add_reader(link.socket.fileno(), self._readable, link)

    # -- receiving --------------------------------------------------------------------------------

    def _readable(self, link: LinkT) -> None:
        """Read a connection once; all frames of this loop iteration are passed on together."""
        if not link.open:
            return
        frames: list[FrameT] = []
        now_ms = self._clock.monotonic_ms()
        trouble = ""
        try:
            count = link.read(frames, now_ms)
        except (BlockingIOError, InterruptedError):
            return
        except DecodeError as error:
            count, trouble = READ_BYTES, str(error)
        except OSError:  # reset or timed out: in any case it is gone
            count = 0
        if count:
            link.last_ms = now_ms
            self._bytes_in += count
            self._batch_bytes += count
        if frames:
            self._silent.pop(link.peer.id, None)
            if not self._paused:
                self._batch += self._inbound(link, frames)
        if link.queue:
            self._mark_dirty(link)
        if trouble:
            self._undecodable += 1
            self._cut_off(link, trouble)
        elif not count:
            self._ended(link)
            self._lost.append(link)
            self._loop.remove_reader(link.socket.fileno())
        else:
            self._count_unfinished(link)
        if (
            len(self._batch) >= limits.FRAMES_PER_TURN_MAX
            or self._batch_bytes >= limits.FRAME_BYTES_PER_TURN_MAX
        ):
            self._deliver()
        elif self._due is None and (self._batch or self._lost):
            self._due = self._loop.call_soon(self._deliver)

    def _count_unfinished(self, link: LinkT) -> None:
        """Count what a connection keeps; disconnect the slowest senders if all keep too much."""
        kept = link.unfinished_bytes
        self._unfinished_bytes += kept - link.counted_bytes
        link.counted_bytes = kept
        while self._unfinished_bytes > limits.UNFINISHED_BYTES_MAX:
            slowest = min(
                (one for one in self._links.values() if one.counted_bytes),
                key=lambda one: one.incomplete_since_ms,
            )
            self._cut_off(
                slowest, f"frames that are not whole yet take {self._unfinished_bytes} bytes"
            )
            self._uncount(slowest)

    def _uncount(self, link: LinkT) -> None:
        self._unfinished_bytes -= link.counted_bytes
        link.counted_bytes = 0

    def _deliver(self) -> None:
        """Pass on the frames received since the last call, then report lost peers."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._delivering:
            return
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if batch:
            self._frames_in += len(batch)
            self._delivering = True
            try:
                self._on_frames(batch)
            finally:
                self._delivering = False
        self._flush()
        self._report_lost()

    # -- disconnects ------------------------------------------------------------------------------

    def cut(self, peer: Peer, reason: str) -> None:
        """Close a peer's connection because of invalid input."""
        link = self._links.get(peer.id)
        if link is not None:
            self._undecodable += 1
            self._cut_off(link, reason)

    def _cut_off(self, link: LinkT, reason: str) -> None:
        if not link.open or link in self._lost:
            return
        self._note_cut(link, reason)
        self._part(link)

    def _note_cut(self, link: LinkT, reason: str) -> None:
        self._cut += 1
        self._complaints.warning(
            "connection-closed: closing the connection of %(peer)s: %(reason)s",
            {"peer": link.peer, "reason": reason},
        )

    def _part(self, link: LinkT) -> None:
        """Close a connection; its loss is reported like any other."""
        self._loop.remove_reader(link.socket.fileno())
        self._lost.append(link)
        if self._due is None and not self._delivering:
            self._due = self._loop.call_soon(self._deliver)

    def _report_lost(self) -> None:
        while self._lost:
            link = self._lost.pop()
            if link.open:
                self._shut(link)
                self._on_disconnect(link.peer)

    def _shut(self, link: LinkT) -> None:
        link.open = False
        self._uncount(link)
        del self._links[link.peer.id]
        self._silent.pop(link.peer.id, None)
        self._dirty.pop(link.peer.id, None)
        self._blocked.pop(link.peer.id, None)
        descriptor = link.socket.fileno()
        self._loop.remove_reader(descriptor)
        self._loop.remove_writer(descriptor)
        link.close()
        link.forget()

    def _sweep(self) -> None:
        """Disconnect stuck peers, and check every other connection."""
        now_ms = self._clock.monotonic_ms()
        self._sweep_later = self._loop.call_later(SWEEP_S, self._sweep)
        for link in list(self._blocked.values()):
            if now_ms - link.blocked_since_ms >= limits.PEER_STUCK_MS_MAX:
                self._cut_off(link, f"it has read nothing for {limits.PEER_STUCK_MS_MAX} ms")
        if not self._paused:
            for link in list(self._links.values()):
                self._look_at(link, now_ms)

    # -- sending ----------------------------------------------------------------------------------

    def send(self, peer: Peer, parts: Sequence[Buffer]) -> bool:
        """Send one message. False if the peer is gone; its loss is, or will be, reported.

        Buffers are not copied: the caller must not write to them again.
        """
        link = self._links.get(peer.id)
        if link is None:
            self._unroutable += 1
            return False
        link.put_message(parts)
        self._frames_out += 1
        if link.blocked_since_ms:
            if link.overfull:
                self._cut_off(link, f"answers of {link.queued_bytes} bytes wait")
                return False
            return True
        if link.queued_bytes >= FLUSH_AT_BYTES:
            self._write(link)
        else:
            self._mark_dirty(link)
        return True

    def _mark_dirty(self, link: LinkT) -> None:
        """Write its queue at the end of this loop iteration."""
        self._dirty[link.peer.id] = link
        if self._flush_due is None and not self._delivering:
            self._flush_due = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._flush_due is not None:
            self._flush_due.cancel()
            self._flush_due = None
        dirty, self._dirty = self._dirty, {}
        for link in dirty.values():
            if link.queue and not link.blocked_since_ms:
                self._write(link)

    def _write(self, link: LinkT) -> None:
        was_blocked = link.blocked_since_ms
        try:
            self._bytes_out += link.write(self._clock.monotonic_ms())
        except OSError:
            # The peer is gone. What it sent before is still in the socket: the reader takes that
            # first, and then finds the end of the connection.
            link.drop_queue()
        if link.blocked_since_ms and not was_blocked:
            self._blocked[link.peer.id] = link
            self._loop.add_writer(link.socket.fileno(), self._write, link)
        elif was_blocked and not link.blocked_since_ms:
            del self._blocked[link.peer.id]
            self._loop.remove_writer(link.socket.fileno())
