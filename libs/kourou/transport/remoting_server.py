"""A TCP listener for the RocketMQ remoting protocol.

A connection is closed, and the reason logged, if it is idle for `idle_ms`, if a single frame takes
longer than that, or if its bytes are not frames.

State: soft.
"""

from __future__ import annotations

import socket as socketlib
from collections.abc import Callable
from typing import NamedTuple

from kourou.clock import Clock
from kourou.errors import DecodeError
from kourou.protocol.wire.remoting import LENGTHS_BYTES, read_lengths
from kourou.runtime.core import Peer
from kourou.transport.tcp_link import TcpLink
from kourou.transport.tcp_server import TcpServer

_GREETINGS = {
    b"\x16": "the peer uses TLS, which this listener does not support",
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
    """Listens on one address for RocketMQ clients."""

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
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            bind_address,
            on_frames,
            on_disconnect,
            listener=listener,
            insecure_network=insecure_network,
            clock=clock,
        )
        self._idle_ms = idle_ms

    def _make_link(self, socket: socketlib.socket, peer: Peer) -> RemotingLink:
        return RemotingLink(socket, peer, self._clock.monotonic_ms())

    def _inbound(self, link: RemotingLink, frames: list[RawFrame]) -> list[InboundFrame]:
        peer = link.peer
        return [InboundFrame(peer, frame) for frame in frames]

    def _look_at(self, link: RemotingLink, now_ms: int) -> None:
        oldest_ms = now_ms - self._idle_ms
        if link.last_ms <= oldest_ms:
            self._idle += 1
            self._complaints.warning(
                "idle",
                "closing the connection of %s: nothing moved for %d ms",
                link.peer,
                now_ms - link.last_ms,
            )
            self._part(link)
        elif 0 < link.unfinished_since_ms <= oldest_ms:
            self._cut_off(
                link, f"its frame is not whole after {now_ms - link.unfinished_since_ms} ms"
            )
