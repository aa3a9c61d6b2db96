"""A TCP listener for the RocketMQ remoting protocol.

A connection is closed, and the reason logged, if it is idle for `idle_ms`, if a single frame takes
longer than that, or if its bytes are not frames.

With TLS the first byte of a connection decides: 0x16 begins a handshake, 0 or 1 a frame. It is
looked at once, before anything is read, so connections in clear text run the same code as without
TLS. If TLS is enforced, their bytes are never read.

State: soft.
"""

from __future__ import annotations

import socket as socketlib
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from kourou.clock import Clock
from kourou.errors import DecodeError
from kourou.model import limits
from kourou.protocol.wire.remoting import LENGTHS_BYTES, read_lengths
from kourou.runtime import Peer
from kourou.transport.tcp_link import TcpLink
from kourou.transport.tcp_server import TcpServer, TcpServerStatistics
from kourou.transport.tls import TLS_HANDSHAKE, ServerTls
from kourou.transport.tls_link import TlsLink

_GREETINGS = {
    TLS_HANDSHAKE: "the peer uses TLS, which is disabled here (tls.server.mode)",
    b"GET ": "the peer uses HTTP",
    b"POST": "the peer uses HTTP",
    b"HEAD": "the peer uses HTTP",
    b"PRI ": "the peer uses HTTP/2",
    b"\xff": "the peer uses ZeroMQ: the ZeroMQ listener has another port",
}
"""First bytes of other protocols; the first byte of a frame is 0 or 1."""


class RawFrame(NamedTuple):
    """A frame with its header still encoded."""

    header_type: int
    header: memoryview
    body: memoryview


class RemotingLink(TcpLink[RawFrame]):
    """A connection that carries RocketMQ frames."""

    __slots__ = ()

    def _cut(self, view: memoryview, frames: list[RawFrame]) -> tuple[int, int]:
        at, end = 0, len(view)
        while end - at >= LENGTHS_BYTES:
            try:
                wanted, header_type, header_size = read_lengths(view, at)
            except DecodeError as error:
                begins = _stranger(bytes(view[at : at + LENGTHS_BYTES]))
                raise DecodeError(f"{error}{begins and ': '}{begins}") from error
            if end - at < wanted:
                return at, wanted
            body_at = at + LENGTHS_BYTES + header_size
            frames.append(
                RawFrame(
                    header_type, view[at + LENGTHS_BYTES : body_at], view[body_at : at + wanted]
                )
            )
            at += wanted
        return at, LENGTHS_BYTES


class RemotingTlsLink(TlsLink[RawFrame], RemotingLink):
    """A connection that carries RocketMQ frames over TLS."""

    __slots__ = ()


def _stranger(first_bytes: bytes) -> str:
    """Return which other protocol begins with these bytes; "" if it is unknown."""
    return next((text for start, text in _GREETINGS.items() if first_bytes.startswith(start)), "")


IDLE_MS = 120_000
"""As RocketMQ's serverChannelMaxIdleTimeSeconds."""


class InboundFrame(NamedTuple):
    """One frame and its sender."""

    peer: Peer
    frame: RawFrame


class RemotingServer(TcpServer[RemotingLink, RawFrame, InboundFrame]):
    """Listens on one address for RocketMQ clients; without `tls` in clear text only."""

    protocol = "tcp"

    def __init__(
        self,
        bind_address: str,
        on_frames: Callable[[list[InboundFrame]], None],
        on_disconnect: Callable[[Peer], None],
        *,
        listener: str = "internal",
        insecure_network: bool = False,
        idle_ms: int = IDLE_MS,
        tls: ServerTls | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            bind_address,
            on_frames,
            on_disconnect,
            listener=listener,
            insecure_network=insecure_network,
            encrypted=tls is not None and tls.enforcing,
            clock=clock,
        )
        self._idle_ms = idle_ms
        self._tls = tls
        self._tls_failed = 0

    def statistics(self) -> TcpServerStatistics:
        """Return the counters and gauges of this listener."""
        over_tls = sum(isinstance(link, RemotingTlsLink) for link in self._links.values())
        return replace(
            super().statistics(), peers_tls=over_tls, tls_handshakes_failed=self._tls_failed
        )

    def _make_link(self, socket: socketlib.socket, peer: Peer) -> RemotingLink:
        return RemotingLink(socket, peer, self._clock.monotonic_ms())

    def _inbound(self, link: RemotingLink, frames: list[RawFrame]) -> list[InboundFrame]:
        peer = link.peer
        return [InboundFrame(peer, frame) for frame in frames]

    # -- TLS --------------------------------------------------------------------------------------

    def _listen_to(self, link: RemotingLink) -> None:
        if self._tls is None:
            super()._listen_to(link)
        else:
            self._loop.add_reader(link.socket.fileno(), self._first_readable, link, self._tls)

    def _first_readable(self, link: RemotingLink, tls: ServerTls) -> None:
        """Decide by the first byte, which stays in the socket, what the connection carries."""
        if not link.open:
            return
        try:
            first = link.socket.recv(1, socketlib.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # reset: the read reports that
            first = b""
        if first == TLS_HANDSHAKE:
            link = RemotingTlsLink(link.socket, link.peer, self._clock.monotonic_ms(), tls.context)
            self._links[link.peer.id] = link
        elif first and tls.enforcing:
            self.cut(link.peer, "it does not use TLS, which this listener requires")
            return
        super()._listen_to(link)
        self._readable(link)

    def _cut_off(self, link: RemotingLink, reason: str) -> None:
        if isinstance(link, RemotingTlsLink) and not link.established:
            self._tls_failed += 1
        super()._cut_off(link, reason)

    def _has_no_handshake(self, link: RemotingLink, now_ms: int) -> bool:
        """Is the time for the handshake over? If TLS is enforced, it began with the connection."""
        if isinstance(link, RemotingTlsLink):
            began_ms = None if link.established else link.began_ms
        else:
            began_ms = link.last_ms if self._encrypted else None
        return began_ms is not None and now_ms - began_ms >= limits.TLS_HANDSHAKE_MS_MAX

    # -- every second -----------------------------------------------------------------------------

    def _sweep(self) -> None:
        super()._sweep()
        if self._tls is not None:
            self._tls.refresh()

    def _look_at(self, link: RemotingLink, now_ms: int) -> None:
        oldest_ms = now_ms - self._idle_ms
        if self._tls is not None and self._has_no_handshake(link, now_ms):
            self._cut_off(link, f"no TLS handshake within {limits.TLS_HANDSHAKE_MS_MAX} ms")
        elif link.last_ms <= oldest_ms:
            self._idle += 1
            self._complaints.warning(
                "connection-idle: closing the connection of %(peer)s: nothing moved for "
                "%(idle_ms)d ms",
                {"peer": link.peer, "idle_ms": now_ms - link.last_ms},
            )
            self._part(link)
        elif 0 < link.unfinished_since_ms <= oldest_ms:
            self._cut_off(
                link, f"its frame is not whole after {now_ms - link.unfinished_since_ms} ms"
            )
