"""ZMTP 3.1, the protocol of ZeroMQ's TCP connections, with the NULL mechanism.

    connection = greeting READY traffic*            both sides send theirs without waiting
    greeting   = FF 8*any 7F version(2) mechanism(20, padded) as-server(1) 31*00        64 bytes
    frame      = flags(1) size(1, or 8 if flags has LONG) bytes
    traffic    = message | command; a message is frames, all but the last flagged MORE
    command    = a frame flagged COMMAND: name-size(1) name data

Source: rfc.zeromq.org/spec/37. The peer is any ZeroMQ library since 4.0, or Kourou itself. Kourou
reads and writes clear-text sockets itself, because libzmq passes each message to a thread of its
own and back (decision 0100). Encrypted connections use libzmq (transport.curve_server,
.curve_wire).

State: soft.
"""

from __future__ import annotations

import socket as socketlib
import struct
from collections.abc import Sequence

from kourou.errors import DecodeError
from kourou.model import limits
from kourou.runtime import Peer
from kourou.transport.tcp_link import Buffer, TcpLink

GREETING_BYTES = 64
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_SIGNATURE_ENDS = 0xFF, 0x7F
_MECHANISM_AT, _MECHANISM_BYTES = 12, 20
VERSION_WITH_PROBES, VERSION_WITHOUT_PROBES = (3, 1), (3, 0)

_MORE, _LONG, _COMMAND = 1, 2, 4
_SHORT_MAX = 255
_SHORT_BYTES, _LONG_BYTES = 2, 9
_LONG_SIZE = struct.Struct(">Q")
_PROPERTY_SIZE = struct.Struct(">I")

_PROBE = b"\x04PING\0\0"
_PONG = b"\x04PONG"
_PING_NAME_BYTES, _PING_TTL_BYTES, _PING_CONTEXT_BYTES_MAX = 5, 2, 16
_QUEUED_BYTES_MAX = 8_192
"""With more in the send queue a PING is not answered: what waits shows that this side lives."""

JOIN_BYTES = 8_192
"""Parts of a message up to this size are copied into one buffer, which is cheaper."""

ROUTER, DEALER = "ROUTER", "DEALER"
_TALKS_TO = {ROUTER: ("DEALER", "REQ", "ROUTER"), DEALER: ("ROUTER", "REP", "DEALER")}

Parts = list[Buffer]


class OtherMechanism(DecodeError):
    """The peer requires encryption, or a mechanism that is unknown here."""


# -- send -----------------------------------------------------------------------------------------


def _head(flags: int, size: int) -> bytes:
    if size <= _SHORT_MAX:
        return bytes((flags, size))
    return bytes((flags | _LONG,)) + _LONG_SIZE.pack(size)


def encode_message(parts: Sequence[Buffer]) -> list[Buffer]:
    """Encode a message as buffers for the socket; large parts are not copied."""
    found: list[Buffer] = []
    small: list[Buffer] = []
    last = len(parts) - 1
    for index, part in enumerate(parts):
        size = len(part)
        small.append(_head(0 if index == last else _MORE, size))
        if size <= JOIN_BYTES:
            small.append(part)
        else:
            found += (b"".join(small), part)
            small = []
    if small:
        found.append(b"".join(small))
    return found


def _command(data: bytes) -> bytes:
    return _head(_COMMAND, len(data)) + data


def _ready(kind: str) -> bytes:
    properties = (("Socket-Type", kind.encode()), ("Identity", b""))
    return _command(
        b"\x05READY"
        + b"".join(
            bytes((len(name),)) + name.encode() + _PROPERTY_SIZE.pack(len(value)) + value
            for name, value in properties
        )
    )


# -- receive --------------------------------------------------------------------------------------


class ZmtpLink(TcpLink[Parts]):
    """A connection that carries ZeroMQ messages. Its greeting is queued on creation.

    `ready`: the handshake is complete. `silent_probes`: number of calls of `probe` since something
    was received. `faults`: an error count kept by the owner. `version`: the version in the
    greeting.
    Invariant: parts of an incomplete message do not keep a much larger buffer that they came in.
    """

    __slots__ = ("_greeted", "_kind", "_parts", "_parts_bytes", "_parts_since_ms", "_probed",
                 "began_ms", "faults", "ready", "silent_probes")  # fmt: skip

    def __init__(
        self,
        socket: socketlib.socket,
        peer: Peer,
        now_ms: int,
        kind: str,
        version: tuple[int, int] = VERSION_WITH_PROBES,
    ) -> None:
        super().__init__(socket, peer, now_ms)
        self.began_ms = now_ms
        self.ready = False
        self.silent_probes = 0
        self.faults = 0
        self._kind = kind
        self._greeted = False
        self._probed = False
        self._parts: Parts = []
        self._parts_bytes = 0
        self._parts_since_ms = 0
        greeting = _SIGNATURE + bytes(version) + b"NULL"
        self.put((greeting.ljust(GREETING_BYTES, b"\0"),))

    def put_message(self, parts: Sequence[Buffer]) -> None:
        """Append a message to the send queue."""
        self.put(encode_message(parts))

    def probe(self) -> None:
        """Send a heartbeat (PING) if nothing was received since the last call.

        A library before ZeroMQ 4.2 cannot respond; such a peer is never probed, nor found silent.
        """
        if not self._probed:
            return
        if self.silent_probes:
            self.put((_command(_PROBE),))
        self.silent_probes += 1

    @property
    def unfinished_bytes(self) -> int:
        """Memory that the incomplete message takes."""
        return super().unfinished_bytes + self._parts_bytes

    @property
    def incomplete_since_ms(self) -> int:
        """When the incomplete message began; 0 if there is none."""
        return self._parts_since_ms or self.unfinished_since_ms

    def read(self, frames: list[Parts], now_ms: int) -> int:
        """Read from the socket once, as TcpLink does."""
        count = super().read(frames, now_ms)
        self.silent_probes = 0
        if self._parts:
            self._parts_since_ms = self._parts_since_ms or now_ms
            self._parts = list(map(_without_the_rest, self._parts))
        return count

    def forget(self) -> None:
        """Release all buffers: the connection is over."""
        super().forget()
        self._drop_parts()

    def _cut(self, view: memoryview, frames: list[Parts]) -> tuple[int, int]:
        at, end = 0, len(view)
        if not self._greeted:
            if view[0] != _SIGNATURE_ENDS[0]:
                began = bytes(view[:8])
                raise DecodeError(f"the peer does not use ZeroMQ: its first bytes are {began!r}")
            if end < GREETING_BYTES:
                return 0, GREETING_BYTES
            self._greet(bytes(view[:GREETING_BYTES]))
            at = GREETING_BYTES
        while end - at >= _SHORT_BYTES:
            flags = view[at]
            if flags & _LONG:
                if end - at < _LONG_BYTES:
                    return at, _LONG_BYTES
                size = _LONG_SIZE.unpack_from(view, at + 1)[0]
                begin = at + _LONG_BYTES
            else:
                size = view[at + 1]
                begin = at + _SHORT_BYTES
            if size > limits.FRAME_SIZE_BYTES_MAX:
                raise DecodeError(
                    f"a part has {size} bytes; at most {limits.FRAME_SIZE_BYTES_MAX} are allowed"
                )
            stop = begin + size
            if stop > end:
                return at, stop - at
            part = view[begin:stop]
            at = stop
            if flags & ~(_MORE | _LONG):
                self._control(flags, bytes(part[: limits.HEADER_SIZE_BYTES_MAX]))
            elif not self.ready:
                raise DecodeError("it sent a message before its handshake was done")
            elif flags & _MORE:
                self._keep_part(part)
            elif self._parts:
                self._keep_part(part)
                frames.append(self._parts)
                self._drop_parts()
            else:
                frames.append([part])
        return at, _SHORT_BYTES

    def _keep_part(self, part: memoryview) -> None:
        """Keep a part of a message.

        If a message has too many parts, one more than the limit is kept: enough to refuse it.
        """
        if len(self._parts) <= limits.FRAME_PARTS_MAX:
            self._parts.append(part)
            self._parts_bytes += len(part)

    def _drop_parts(self) -> None:
        self._parts = []
        self._parts_bytes = self._parts_since_ms = 0

    def _greet(self, greeting: bytes) -> None:
        if greeting[9] != _SIGNATURE_ENDS[1]:
            raise DecodeError("the peer does not use ZeroMQ: its greeting has another signature")
        version = (greeting[10], greeting[11])
        if version < VERSION_WITHOUT_PROBES:
            raise DecodeError("the peer uses a ZMTP before 3.0, of a ZeroMQ library before 4.0")
        mechanism = greeting[_MECHANISM_AT : _MECHANISM_AT + _MECHANISM_BYTES].rstrip(b"\0")
        if mechanism != b"NULL":
            name = mechanism.decode("ascii", "replace")
            raise OtherMechanism(
                f"the peer requires {name}, and this listener has no keys (curveKeyFile)"
            )
        self._greeted = True
        self._probed = version >= VERSION_WITH_PROBES
        self.put((_ready(self._kind),))

    def _control(self, flags: int, data: bytes) -> None:
        """Handle a command. An unknown command is ignored, as the protocol requires."""
        if flags & ~(_COMMAND | _LONG):
            raise DecodeError(f"a frame has the unknown flags 0x{flags:02X}")
        if data.startswith(b"\x05READY"):
            self._meet(data)
        elif data.startswith(b"\x05ERROR"):
            raise DecodeError(f"it refused: {data[7:].decode('utf-8', 'replace')}")
        elif data.startswith(b"\x04PING") and self.queued_bytes < _QUEUED_BYTES_MAX:
            context_at = _PING_NAME_BYTES + _PING_TTL_BYTES
            self.put((_command(_PONG + data[context_at : context_at + _PING_CONTEXT_BYTES_MAX]),))

    def _meet(self, data: bytes) -> None:
        kind = _socket_type(data)
        if kind not in _TALKS_TO[self._kind]:
            raise DecodeError(f"its socket is a {kind or '?'}, which a {self._kind} does not serve")
        self.ready = True


def _without_the_rest(part: Buffer) -> Buffer:
    """Return a copy of a part if it is the smaller half of the buffer in which it arrived."""
    if isinstance(part, memoryview) and 2 * len(part) < memoryview(part.obj).nbytes:
        return bytes(part)
    return part


def _socket_type(ready: bytes) -> str:
    """Return the property Socket-Type of a READY command; "" if it has none."""
    at = 6
    while at < len(ready):
        name = ready[at + 1 : at + 1 + ready[at]]
        at += 1 + ready[at]
        if at + _PROPERTY_SIZE.size > len(ready):
            break
        (size,) = _PROPERTY_SIZE.unpack_from(ready, at)
        at += _PROPERTY_SIZE.size
        if name.lower() == b"socket-type":
            return ready[at : at + size].decode("ascii", "replace")
        at += size
    return ""
