"""A clear-text client connection for a thread that waits for each reply on the socket itself.

The thread reads only while it waits for a reply. Therefore the greeting announces ZMTP 3.0, which
has no heartbeats: the server neither sends heartbeats nor expects them. `is_fresh` checks the
connection before it is used again.

State: soft. Not thread-safe: one thread at a time may use a connection.
"""

from __future__ import annotations

import socket as socketlib
import struct
import time
from collections.abc import Callable, Sequence

from kourou.errors import DecodeError, TimedOut, Unavailable, UnknownOutcome
from kourou.protocol.wire.frames import Frame, FrameKind, decode_frame
from kourou.runtime import Peer
from kourou.transport.addresses import next_peer_id, split_address
from kourou.transport.tcp_link import Buffer
from kourou.transport.zmtp import DEALER, VERSION_WITHOUT_PROBES, Parts, ZmtpLink

WAIT_MS = 500
"""Longest wait in one system call; then the caller's `waits` is evaluated."""

FRESH_FOR_MS = 5_000
"""A connection that was idle for longer is not reused: the network path may be gone."""


class BlockingWire:
    """A DEALER connection to `address` (`host:port`)."""

    def __init__(self, address: str, timeout_ms: int) -> None:
        """Connect and complete the handshake. Raises Unavailable."""
        self.address = address
        host, port = split_address(address)
        until_ms = _now_ms() + timeout_ms
        try:
            socket = socketlib.create_connection((host, port), max(timeout_ms, 1) / 1_000)
        except (OSError, UnicodeError) as error:
            raise Unavailable(f"no connection to {address}: {error}") from error
        try:
            socket.setsockopt(socketlib.IPPROTO_TCP, socketlib.TCP_NODELAY, 1)
            socket.setblocking(True)
            wait = struct.pack("@ll", 0, WAIT_MS * 1_000)
            for option in (socketlib.SO_RCVTIMEO, socketlib.SO_SNDTIMEO):
                socket.setsockopt(socketlib.SOL_SOCKET, option, wait)
            peer = Peer(next_peer_id(), "zmq", (host, port))
            self._link = ZmtpLink(socket, peer, _now_ms(), DEALER, VERSION_WITHOUT_PROBES)
            self._used_ms = _now_ms()
            self._handshake(until_ms)
        except (OSError, DecodeError) as error:
            socket.close()
            raise Unavailable(f"no connection to {address}: {error}") from error
        except BaseException:
            socket.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._link.socket.close()
        self._link.forget()

    @property
    def is_fresh(self) -> bool:
        """Can it be reused? True if it was used recently, is open and has no unread input."""
        if _now_ms() - self._used_ms > FRESH_FOR_MS:
            return False
        try:
            self._link.socket.recv(1, socketlib.MSG_PEEK | socketlib.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return False

    def ask(
        self,
        parts: Sequence[Buffer],
        correlation: int,
        until_ms: int,
        waits: Callable[[], bool],
    ) -> Frame | None:
        """Send a request and wait for its reply until `until_ms` of the monotonic clock.

        `waits` is called every WAIT_MS; the result is None if it returns False. Raises Unavailable
        if the request was certainly not sent, TimedOut at the deadline, and UnknownOutcome if the
        connection ended. After any of these errors, and after None, the caller must close the
        connection, because the reply may still arrive.
        """
        link = self._link
        link.put_message(parts)
        try:
            while link.queue:
                link.write(_now_ms())
                if link.queue and _now_ms() >= until_ms:
                    raise TimedOut(f"{self.address} did not take the request in time")
            frames: list[Parts] = []
            while True:
                if not self._read(frames):
                    if _now_ms() >= until_ms:
                        raise TimedOut(f"{self.address} did not reply in time")
                    if not waits():
                        return None
                for one in frames:
                    frame = decode_frame(one)
                    if frame.kind is FrameKind.REPLY and frame.correlation == correlation:
                        self._used_ms = _now_ms()
                        return frame
                frames.clear()
        except (OSError, DecodeError) as error:
            raise UnknownOutcome(f"{self.address}: the connection ended: {error}") from error

    def _read(self, frames: list[Parts]) -> bool:
        """Read once. False if nothing arrived within WAIT_MS; OSError at the end of the stream."""
        try:
            count = self._link.read(frames, _now_ms())
        except (BlockingIOError, InterruptedError):
            return False
        if not count:
            raise ConnectionResetError("the server closed it")
        return True

    def _handshake(self, until_ms: int) -> None:
        frames: list[Parts] = []
        link = self._link
        while not link.ready:
            if link.queue:
                link.write(_now_ms())
            self._read(frames)
            if not link.ready and _now_ms() >= until_ms:
                raise TimeoutError("no handshake in time")
        if link.queue:
            link.write(_now_ms())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
