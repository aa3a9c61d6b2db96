"""The position of a reader of several queues as a short text: for page cursors and event IDs.

    checksum of the queues' names (4 bytes)  time in ms (6 bytes)  a varint for each queue

A text belongs to one list of queues, in their order. For another list (queues were added, or a
broker is offline) only its time is used: the reader's progress by the clock of the brokers.

A queue whose broker did not report its start is *silent*. The text contains it nevertheless, since
the next text would otherwise belong to another list; its offset is looked up later by the time.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kourou.errors import BadRequest
from kourou.model.limits import PLACES_LENGTH_MAX
from kourou.model.topic import MessageQueue

HEAD_BYTES = 10
_OFFSET_MAX = 1 << 63
_SILENT = _OFFSET_MAX - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A decoded text: the next offsets, None if it belongs to other queues; and its time."""

    offsets: dict[MessageQueue, int] | None
    time_ms: int
    #: Queues of which only the time is known.
    silent: tuple[MessageQueue, ...] = ()


def encode_cursor(
    offsets: Mapping[MessageQueue, int], time_ms: int, silent: Collection[MessageQueue] = ()
) -> str:
    """Encode these offsets. `time_ms` is the reader's progress, where `silent` queues start."""
    offsets_or_silent = {**offsets, **dict.fromkeys(silent, _SILENT)}
    queues = sorted(offsets_or_silent)
    parts = [_checksum(queues).to_bytes(4, "big"), max(time_ms, 0).to_bytes(6, "big")]
    parts += [_varint(offsets_or_silent[queue]) for queue in queues]
    return base64.urlsafe_b64encode(b"".join(parts)).rstrip(b"=").decode()


def decode_cursor(text: str, queues: Sequence[MessageQueue]) -> Cursor:
    """Decode a text for these queues. Raises BadRequest if it is invalid."""
    raw = _decoded(text)
    time_ms = int.from_bytes(raw[4:HEAD_BYTES], "big")
    ordered = sorted(queues)
    if int.from_bytes(raw[:4], "big") != _checksum(ordered):
        return Cursor(None, time_ms)
    offsets: dict[MessageQueue, int] = {}
    silent: list[MessageQueue] = []
    at = HEAD_BYTES
    for queue in ordered:
        value = shift = 0
        while True:
            if at >= len(raw) or shift > 63:
                raise _invalid(text)
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if value >= _OFFSET_MAX:
            raise _invalid(text)
        if value == _SILENT:
            silent.append(queue)
        else:
            offsets[queue] = value
    if at != len(raw):
        raise _invalid(text)
    return Cursor(offsets, time_ms, tuple(silent))


def _decoded(text: str) -> bytes:
    if not text.isascii() or len(text) > PLACES_LENGTH_MAX:
        raise _invalid(text)
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise _invalid(text) from None
    if len(raw) < HEAD_BYTES:
        raise _invalid(text)
    return raw


def _invalid(text: str) -> BadRequest:
    return BadRequest(f"{text[:40]!r} is not a cursor", hint="pass the returned cursor unchanged")


def _checksum(queues: Sequence[MessageQueue]) -> int:
    return zlib.crc32("\n".join(map(str, queues)).encode())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
