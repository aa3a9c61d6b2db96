"""The ZeroMQ frame of requests and replies between Kourou's own processes.

    frame  = head body*                    a ZeroMQ multipart message, at most FRAME_PARTS_MAX parts
    head   = prefix header                 one part
    prefix = magic(1, 0x4B) version(1) kind(1) flags(1) code(4, signed)
             correlation(8) deadline(4, ms left, 0: none) trace(16 + 8 + 1)     big-endian, 45 bytes
             [length(2) UTF-8: the user on whose behalf a console or a replica sends it, if flags
             has bit 0]
    header = the request's header, msgpack map
           | [remark, header | nil]        in a reply, msgpack array

docs/formats/frame.md has a worked example and discusses the design.

Decoders are created once for each header class. Errors depend on the cause: bytes that are not a
frame are a DecodeError (no reply is possible); a frame whose header has a wrong field is a
BadRequest, which names the field and is sent as the reply; anything wrong with a reply is a
DecodeError.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from kourou.errors import BadRequest, Code, DecodeError
from kourou.model.limits import (
    API_TOKEN_ID_LENGTH,
    DEADLINE_MS_MAX,
    FRAME_PARTS_MAX,
    HEADER_SIZE_BYTES_MAX,
    REPLY_HEADER_SIZE_BYTES_MAX,
    SEND_HEADER_SIZE_BYTES_MAX,
    USER_NAME_LENGTH_MAX,
)
from kourou.protocol.messages.quotas import FlowControlled
from kourou.protocol.messages.sends import SendRecords
from kourou.protocol.request import Request, Response
from kourou.protocol.table import REQUESTS

Buffer = bytes | bytearray | memoryview

MAGIC = 0x4B
VERSION = 1
NO_TRACE = bytes(25)
"""The trace context of a request that is not traced."""

_PREFIX = struct.Struct(">4BiQI25s")
PREFIX_BYTES = _PREFIX.size
_DEADLINE = struct.Struct(">I")
_DEADLINE_AT = 16
_FLOW_CONTROL = int(Code.FLOW_CONTROL)
ON_BEHALF_OF = 1
"""The flag of a frame that names the user on whose behalf it is sent."""

_FLAGS_AT = 3
_NAME_SIZE = struct.Struct(">H")
_CONNECTION_BYTES_MAX = 72
_NAME_BYTES_MAX = 2 * 4 * USER_NAME_LENGTH_MAX + 1 + API_TOKEN_ID_LENGTH + _CONNECTION_BYTES_MAX
"""A replica that forwards a request names a console, its user or a token of it, and a connection.

That is an address and a protocol.
"""

_REPLY_WITHOUT_HEADER = 0xC0  # msgpack's nil, the last byte of such a reply


class FrameKind(IntEnum):
    """The kind of a frame; only a REQUEST expects a reply."""

    REQUEST = 1
    REPLY = 2
    ONEWAY = 3
    NOTIFY = 4


_KINDS = {int(kind): kind for kind in FrameKind}


@dataclass(slots=True)
class Frame:
    """A frame whose prefix was checked; `header` is still msgpack, `body` the further parts.

    `code` is a request code, or in a reply the response code. `deadline_ms` is the time that the
    sender still waits, 0 if not stated. `on_behalf_of` is the user that a console names, or the
    origin of a request that a replica forwards (kourou.runtime.Origin), else "".
    """

    kind: FrameKind
    code: int
    correlation: int
    deadline_ms: int
    trace: bytes
    header: memoryview
    body: list[Buffer]
    on_behalf_of: str = ""


# -- encoding -------------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder().encode


def encode_request(
    request: Request,
    *,
    correlation: int,
    deadline_ms: int,
    trace: bytes = NO_TRACE,
    kind: FrameKind = FrameKind.REQUEST,
) -> bytes:
    """The first part of a request. `deadline_ms` is relative, and limited to DEADLINE_MS_MAX."""
    deadline = min(max(deadline_ms, 0), DEADLINE_MS_MAX)
    return _PREFIX.pack(
        MAGIC, VERSION, kind, 0, request.code, correlation, deadline, trace
    ) + _encode(request)


def encode_reply(
    correlation: int,
    code: int,
    remark: str = "",
    header: msgspec.Struct | None = None,
    trace: bytes = NO_TRACE,
) -> bytes:
    """The first part of the reply to the request of `correlation`."""
    return _PREFIX.pack(MAGIC, VERSION, FrameKind.REPLY, 0, code, correlation, 0, trace) + _encode(
        (remark, header)
    )


def patch_deadline(head: Buffer, deadline_ms: int) -> bytes:
    """`head` with another deadline, for a request that had to wait before it could be sent."""
    patched = bytearray(head)
    _DEADLINE.pack_into(patched, _DEADLINE_AT, min(max(deadline_ms, 0), DEADLINE_MS_MAX))
    return bytes(patched)


def name_user(head: Buffer, user: str) -> bytes:
    """`head` of a request, sent on behalf of this user."""
    name = user.encode()
    prefix = bytearray(head[:PREFIX_BYTES])
    prefix[_FLAGS_AT] |= ON_BEHALF_OF
    return b"".join((prefix, _NAME_SIZE.pack(len(name)), name, head[PREFIX_BYTES:]))


# -- decoding -------------------------------------------------------------------------------------


def decode_frame(parts: Sequence[Buffer]) -> Frame:
    """Check the prefix of a received frame. Raises DecodeError if it is not a Kourou frame."""
    if not 0 < len(parts) <= FRAME_PARTS_MAX:
        raise DecodeError(f"a frame has 1 to {FRAME_PARTS_MAX} parts, this one has {len(parts)}")
    head = memoryview(parts[0])
    size = len(head)
    if size <= PREFIX_BYTES:
        raise DecodeError(f"a frame's head has over {PREFIX_BYTES} bytes, this one has {size}")
    magic, version, kind, flags, code, correlation, deadline_ms, trace = _PREFIX.unpack_from(head)
    if magic != MAGIC:
        raise DecodeError(f"this is not a Kourou frame: it starts with 0x{magic:02X}")
    if version != VERSION:
        raise DecodeError(f"the frame has version {version}; this program speaks {VERSION}")
    known = _KINDS.get(kind)
    if known is None:
        raise DecodeError(f"the frame has the unknown kind {kind}")
    if size - PREFIX_BYTES > HEADER_SIZE_BYTES_MAX:
        _check_long_header(known, code, size - PREFIX_BYTES)
    if deadline_ms > DEADLINE_MS_MAX:
        deadline_ms = DEADLINE_MS_MAX
    user, header = "", head[PREFIX_BYTES:]
    if flags & ON_BEHALF_OF:
        user, header = _named_user(header)
    return Frame(known, code, correlation, deadline_ms, trace, header, list(parts[1:]), user)


def _named_user(rest: memoryview) -> tuple[str, memoryview]:
    """The user that a frame names, and its header."""
    if len(rest) > _NAME_SIZE.size:
        end = _NAME_SIZE.size + _NAME_SIZE.unpack_from(rest)[0]
        if _NAME_SIZE.size < end < len(rest) and end <= _NAME_SIZE.size + _NAME_BYTES_MAX:
            try:
                return str(rest[_NAME_SIZE.size : end], "utf-8"), rest[end:]
            except UnicodeDecodeError:
                pass
    raise DecodeError("the frame names no user on whose behalf it is sent")


def _check_long_header(kind: FrameKind, code: int, size: int) -> None:
    """Coalesced sends and their replies list every message, so they may be longer."""
    if kind == FrameKind.REPLY:
        allowed = REPLY_HEADER_SIZE_BYTES_MAX
    elif code == SendRecords.code:
        allowed = SEND_HEADER_SIZE_BYTES_MAX
    else:
        allowed = HEADER_SIZE_BYTES_MAX
    if size > allowed:
        raise DecodeError(f"the header has {size} bytes; at most {allowed} are allowed")


_REQUEST_DECODERS = {
    code: msgspec.msgpack.Decoder(spec.header).decode for code, spec in REQUESTS.items()
}
_reply_decoders: dict[type[Response], Any] = {}
_decode_bare_reply = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode


def decode_request(frame: Frame) -> Request:
    """The header of a request; unknown fields are ignored.

    Raises BadRequest, with the code REQUEST_CODE_NOT_SUPPORTED for an unknown code, and otherwise
    naming the field that is missing or wrong.
    """
    decode = _REQUEST_DECODERS.get(frame.code)
    if decode is None:
        raise BadRequest(
            f"request type {frame.code} not supported", code=Code.REQUEST_CODE_NOT_SUPPORTED
        )
    try:
        return decode(frame.header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        name = REQUESTS[frame.code].name
        raise BadRequest(f"the header of {name} is wrong: {error}") from error


def decode_reply(
    frame: Frame, response_type: type[Response] | None
) -> tuple[int, str, Response | None]:
    """(code, remark, header) of a reply; the header is None if the reply has none.

    Raises DecodeError if the reply is not a `response_type`. An error reply need not be one: a
    server that stored nothing has no message ID to return, so a header that lacks fields counts as
    absent. One with FLOW_CONTROL is a FlowControlled, whatever the request.
    """
    if frame.code == _FLOW_CONTROL:
        response_type = FlowControlled
    try:
        if response_type is None or frame.header[-1] == _REPLY_WITHOUT_HEADER:
            remark, raw = _decode_bare_reply(frame.header)
            if response_type is None or bytes(raw) == b"\xc0":
                return frame.code, remark, None
        decode = _reply_decoders.get(response_type)
        if decode is None:
            decode = msgspec.msgpack.Decoder(tuple[str, response_type | None]).decode  # type: ignore[valid-type]  # a class known at run time only
            _reply_decoders[response_type] = decode
        remark, header = decode(frame.header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        bare_remark = None if frame.code == Code.SUCCESS else _remark_alone(frame)
        if bare_remark is None:
            raise DecodeError(f"a reply with code {frame.code} is malformed: {error}") from error
        return frame.code, bare_remark, None
    return frame.code, remark, header


def _remark_alone(frame: Frame) -> str | None:
    """The remark of a reply with a malformed header; None if the remark is malformed too."""
    try:
        remark: str = _decode_bare_reply(frame.header)[0]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return remark
