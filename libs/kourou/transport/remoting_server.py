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
from kourou.runtime.core import Peer
from kourou.transport.remoting_link import RawFrame, RemotingLink
from kourou.transport.tcp_server import TcpServer

IDLE_MS = 120_000
"""As RocketMQ's serverChannelMaxIdleTimeSeconds."""


class InboundFrame(NamedTuple):
    """One frame and its sender."""

    peer: Peer
    frame: RawFrame


class RemotingServer(TcpServer[RemotingLink, RawFrame, InboundFrame]):
    """Listens on one address for RocketMQ clients."""

    carrier = "tcp"

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
