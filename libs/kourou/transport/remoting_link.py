"""Splits the byte stream of one TCP connection into RocketMQ frames.

State: soft.
"""

from __future__ import annotations

from typing import NamedTuple

from kourou.errors import DecodeError
from kourou.protocol.wire.remoting import LENGTHS_BYTES, read_lengths
from kourou.transport.tcp_link import TcpLink

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
