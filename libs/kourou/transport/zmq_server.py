"""A clear-text ZeroMQ listener.

It behaves as a ROUTER socket: it serves any DEALER. A peer is disconnected after PEER_FAULTS_MAX
messages that are not valid frames, if it completes no handshake within HANDSHAKE_MS_MAX, if it does
not respond to heartbeats for PEER_SILENT_PROBES_MAX seconds, or if a single message takes longer
than DEADLINE_MS_MAX, after which no sender waits for a reply.

State: soft.
"""

from __future__ import annotations

import socket as socketlib
from dataclasses import dataclass

from kourou.errors import BadRequest, DecodeError
from kourou.model import limits
from kourou.protocol.wire.frames import Frame, decode_frame
from kourou.runtime import Peer
from kourou.transport.tcp_server import TcpServer
from kourou.transport.zmtp import ROUTER, Parts, ZmtpLink


@dataclass(frozen=True, slots=True)
class Inbound:
    """One frame and its sender."""

    peer: Peer
    frame: Frame


class ZmqServer(TcpServer[ZmtpLink, Parts, Inbound]):
    """Listens on one address for ZeroMQ clients, in clear text."""

    protocol = "zmq"

    def _make_link(self, socket: socketlib.socket, peer: Peer) -> ZmtpLink:
        return ZmtpLink(socket, peer, self._clock.monotonic_ms(), ROUTER)

    def _inbound(self, link: ZmtpLink, frames: list[Parts]) -> list[Inbound]:
        peer = link.peer
        found: list[Inbound] = []
        for parts in frames:
            try:
                found.append(Inbound(peer, decode_frame(parts)))
            except (DecodeError, BadRequest) as error:
                self._undecodable += 1
                link.faults += 1
                self._complaints.warning(
                    "frame-dropped: dropping a frame from %(peer)s: %(error)s",
                    {"peer": peer, "error": error},
                    kind=peer.address[0],
                )
                if link.faults == limits.PEER_FAULTS_MAX:
                    self._cut_off(link, f"{link.faults} undecodable frames")
                    break
        return found

    def _ended(self, link: ZmtpLink) -> None:
        if link.unfinished_bytes and not link.ready:
            # libzmq closes the connection as soon as it sees that the other side has no keys.
            self._complaints.warning(
                "handshake-ended: %(peer)s disconnected during the handshake: it may require "
                "CURVE, and this listener has no keys (curveKeyFile)",
                {"peer": link.peer},
            )

    def _look_at(self, link: ZmtpLink, now_ms: int) -> None:
        if not link.ready:
            if now_ms - link.began_ms >= limits.HANDSHAKE_MS_MAX:
                self._cut_off(link, f"no handshake within {limits.HANDSHAKE_MS_MAX} ms")
            return
        if link.silent_probes >= limits.PEER_SILENT_PROBES_MAX:
            self._cut_off(link, f"it has been silent for {link.silent_probes} s")
            return
        if 0 < link.incomplete_since_ms <= now_ms - limits.DEADLINE_MS_MAX:
            self._cut_off(
                link, f"its message is not whole after {now_ms - link.incomplete_since_ms} ms"
            )
            return
        link.probe()
        if link.queue:
            self._mark_dirty(link)
