"""The RocketMQ 4.x remoting frame, with both of its header types.

    frame       = total_length(4) header_word(4) header body
    total_length  counts everything after itself
    header_word = header type(1) header length(3)            big-endian
    header      = JSON object | binary header                 types 0 and 1

docs/formats/frame.md shows both headers in hex. Reading a JSON header is as lenient as RocketMQ's
own reader; writing is standard JSON.

Every error is a DecodeError, after which the connection must be closed: once a stream was split
wrongly, no further frame can be found. A JSON header that can be parsed, with a valid `opaque`, is
no such error even if other members are invalid: the command has a `problem`; the server calls
`check`, replies with the BadRequest, and the connection continues.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from kourou.access.signature import SignedFields
from kourou.errors import BadRequest, DecodeError
from kourou.model.limits import (
    FRAME_SIZE_BYTES_MAX,
    JSON_FIELDS_MAX,
    REMOTING_HEADER_SIZE_BYTES_MAX,
)
from kourou.protocol.request import Int32, Request
from kourou.protocol.wire import lenient_json

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2
VERSION_4_9_8 = 409
"""The version in Kourou's replies: Java clients refuse SQL filters below 232."""

VERSION_5_0_0 = 413
"""The first version of clients of RocketMQ 5 (`MQVersion` of 5.3.3)."""


class HeaderType(IntEnum):
    """The encoding of a header; a reply uses that of its request."""

    JSON = 0
    BINARY = 1


class Language(IntEnum):
    """The language of the other side; CPP changes the form of one body (`encode_offset_table`)."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


_LANGUAGES = {int(language): language for language in Language}
LANGUAGE_NAMES = dict(Language.__members__)
NAME_OF_LANGUAGE = {language: language.name for language in Language}


@dataclass(slots=True)
class RemotingCommand:
    """A request or response, its header still as text fields.

    `ext_fields` is None if the header has no such object; an empty body equals none. `problem` says
    what is invalid; such a field has its default, and `opaque` is correct. A command that
    `decode_usual_header` returns has its `request` instead of the fields, and `signed` if it has an
    access key.
    """

    code: int
    language: Language = Language.PYTHON
    version: int = VERSION_4_9_8
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes | memoryview = b""
    header_type: HeaderType = HeaderType.JSON
    problem: str = ""
    request: Request | None = None
    signed: SignedFields | None = None

    def check(self) -> None:
        """Raise BadRequest if a part of the header is invalid."""
        if self.problem:
            raise BadRequest(self.problem)

    @property
    def is_response(self) -> bool:
        """True if this is a reply to a request of the receiver."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True if the sender expects no reply."""
        return bool(self.flag & FLAG_ONEWAY)


# -- whole frames ---------------------------------------------------------------------------------

_HEADER_TYPES = tuple(HeaderType)
_LENGTHS = struct.Struct(">II")
_LENGTH_BYTES = 4
LENGTHS_BYTES = _LENGTHS.size
_HEADER_LENGTH_MASK = 0xFFFFFF


def encode_command(command: RemotingCommand) -> bytes:
    """The frame of a command."""
    return b"".join((encode_head(command, len(command.body)), command.body))


def encode_head(command: RemotingCommand, body_size: int) -> bytes:
    """The frame of a command up to its body, which is sent separately in one piece or more."""
    if command.header_type == HeaderType.JSON:
        header = _encode_json_header(command)
    else:
        header = _encode_binary_header(command)
    return frame_lengths(command.header_type, len(header), body_size) + header


def frame_lengths(header_type: int, header_size: int, body_size: int) -> bytes:
    """The first eight bytes of a frame."""
    return _LENGTHS.pack(_LENGTH_BYTES + header_size + body_size, header_type << 24 | header_size)


def decode_command(frame: bytes | bytearray | memoryview) -> RemotingCommand:
    """The command of one whole frame, including its length word."""
    view = memoryview(frame)
    if len(view) < _LENGTHS.size:
        raise DecodeError(f"a frame has at least {_LENGTHS.size} bytes, this one has {len(view)}")
    total, word = _LENGTHS.unpack_from(view)
    if total + _LENGTH_BYTES != len(view):
        raise DecodeError(f"the frame claims {total + _LENGTH_BYTES} bytes and has {len(view)}")
    header_type, header_length = _split_word(word, total)
    body_at = _LENGTHS.size + header_length
    command = decode_header(header_type, bytes(view[_LENGTHS.size : body_at]))
    command.body = bytes(view[body_at:])
    return command


def decode_header(header_type: int, header: bytes) -> RemotingCommand:
    """The command of a header, without its body."""
    if header_type == HeaderType.JSON:
        return _decode_json_header(header)
    return _decode_binary_header(header)


def read_lengths(
    buffer: bytes | bytearray | memoryview, at: int, frame_size_max: int = FRAME_SIZE_BYTES_MAX
) -> tuple[int, int, int]:
    """(frame size, header type, header size) of the frame that starts at `at`.

    At least LENGTHS_BYTES must be there; they are checked before the rest of the frame has arrived.
    """
    total, word = _LENGTHS.unpack_from(buffer, at)
    size: int = total + _LENGTH_BYTES
    if size > frame_size_max:
        raise DecodeError(f"the frame claims {size} bytes; at most {frame_size_max} are allowed")
    if total < _LENGTH_BYTES:
        raise DecodeError(f"the frame claims {total} bytes behind its length; 4 is the least")
    header_type, header_size = _split_word(word, total)
    return size, header_type, header_size


def _split_word(word: int, total: int) -> tuple[HeaderType, int]:
    kind, header_length = word >> 24, word & _HEADER_LENGTH_MASK
    if kind >= len(_HEADER_TYPES):
        raise DecodeError(f"the frame's header type is {kind}; there are only 0 and 1")
    if header_length > total - _LENGTH_BYTES:
        raise DecodeError(f"the header claims {header_length} bytes in a frame of {total}")
    if header_length > REMOTING_HEADER_SIZE_BYTES_MAX:
        raise DecodeError(
            f"the header has {header_length} bytes; "
            f"at most {REMOTING_HEADER_SIZE_BYTES_MAX} are allowed"
        )
    return _HEADER_TYPES[kind], header_length


class FrameReader:
    """Splits the received bytes of a connection into commands. State: one incomplete frame.

    After bad bytes `error` is set, and every later `feed` raises it. Commands that were complete
    before the bad bytes are still returned, so a caller checks `error` after handling them.
    """

    __slots__ = ("_buffer", "_frame_size_max", "error")

    def __init__(self, frame_size_max: int = FRAME_SIZE_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._frame_size_max = frame_size_max
        self.error: DecodeError | None = None

    @property
    def pending_bytes(self) -> int:
        """The bytes of an incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[RemotingCommand]:
        """The commands that are complete now. Raises DecodeError if there are only bad bytes."""
        if self.error is not None:
            raise self.error
        buffer = self._buffer
        buffer += data
        commands: list[RemotingCommand] = []
        at = 0
        try:
            while len(buffer) - at >= _LENGTHS.size:
                size, _, _ = read_lengths(buffer, at, self._frame_size_max)
                if len(buffer) - at < size:
                    break
                with memoryview(buffer) as view:
                    commands.append(decode_command(view[at : at + size]))
                at += size
        except DecodeError as error:
            self.error = error
            self._buffer = bytearray()  # the error's traceback may still refer to the old one
            if not commands:
                raise
            return commands
        del buffer[:at]
        return commands


# -- the JSON header ------------------------------------------------------------------------------


class _JsonOut(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    code: int
    ext_fields: dict[str, str] | None = None
    flag: int
    language: str
    opaque: int
    remark: str | None = None
    serialize_type: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


class _JsonIn(msgspec.Struct, rename="camel", kw_only=True):
    """A header as RocketMQ's own clients write it; others are read leniently."""

    code: Int32
    ext_fields: dict[str, str] | None = None
    flag: Int32 = 0
    language: str = ""
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0


_json_encode = msgspec.json.Encoder().encode
_json_decode = msgspec.json.Decoder(_JsonIn).decode


def _encode_json_header(command: RemotingCommand) -> bytes:
    return _json_encode(
        _JsonOut(
            code=command.code,
            ext_fields=command.ext_fields,
            flag=command.flag,
            language=NAME_OF_LANGUAGE[command.language],
            opaque=command.opaque,
            remark=command.remark,
            serialize_type="JSON",
            version=command.version,
        )
    )


def _decode_json_header(header: bytes) -> RemotingCommand:
    try:
        given = _json_decode(header)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _lenient_json_header(header)
    fields = given.ext_fields
    if fields is not None and len(fields) > JSON_FIELDS_MAX:
        fields = _texts(fields)
    language = LANGUAGE_NAMES.get(given.language)
    return RemotingCommand(
        given.code,
        _language(given.language) if language is None else language,
        given.version,
        given.opaque,
        given.flag,
        given.remark,
        fields,
    )


def _lenient_json_header(header: bytes) -> RemotingCommand:
    """Read each member. Raises DecodeError if no reply is possible: no object, or no opaque."""
    value = lenient_json.loads(header)
    if not isinstance(value, dict):
        raise DecodeError("the frame's header is malformed: it is not a JSON object")
    try:
        opaque = _integer(value.get("opaque"))
    except ValueError as error:
        raise DecodeError(f"the frame's header is malformed: its opaque {error}") from error
    command = RemotingCommand(0, _language(value.get("language")), 0, opaque or 0)
    problems: list[str] = []
    for name, read in _MEMBERS.items():
        try:
            found = read(value.get(name))
        except ValueError as error:
            problems.append(f"{name} {error}")
            continue
        if found is not None:
            setattr(command, _ATTRIBUTES.get(name, name), found)
        elif name == "code":
            problems.append("code is missing")
    if problems:
        command.problem = f"the header is wrong: {'; '.join(problems)}"
    return command


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")


def _integer(value: Any) -> int | None:
    """A 32-bit number in every spelling that RocketMQ reads; None if absent.

    A boolean is 1 or 0, as in Java's reader. Raises ValueError if it is not such a number.
    """
    if isinstance(value, str):
        bare = value.strip()
        if bare.lower() in ("", "null"):
            return None
        value = int(bare) if _WHOLE_NUMBER.fullmatch(bare) else None
    elif value is None:
        return None
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise ValueError("is not a whole number")
    if not -(2**31) <= value < 2**31:
        raise ValueError("does not fit into 32 bits")
    return int(value)


def _remark(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        raise ValueError("is not text")
    return _plain_text(value)


def _fields(value: Any) -> dict[str, str] | None:
    if value is None or value == "":
        return None
    if not isinstance(value, dict):
        raise ValueError("is not an object")
    for name, member in value.items():
        if not isinstance(name, str):
            raise ValueError("has a key that is not text")
        if isinstance(member, (dict, list)):
            raise ValueError(f"has a member that is neither text nor a number: {name}")
    return _texts(value)


_MEMBERS = {
    "code": _integer,
    "version": _integer,
    "flag": _integer,
    "remark": _remark,
    "extFields": _fields,
}
_ATTRIBUTES = {"extFields": "ext_fields"}


def _texts(fields: dict[str, Any] | None) -> dict[str, str] | None:
    """Extension fields as text; null members are absent."""
    if fields is None:
        return None
    if len(fields) > JSON_FIELDS_MAX:
        raise DecodeError(f"a header has {len(fields)} fields; {JSON_FIELDS_MAX} are allowed")
    return {
        name: value if type(value) is str else _plain_text(value)
        for name, value in fields.items()
        if value is not None
    }


def _plain_text(value: float | bool | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _language(named: Any) -> Language:
    """The language of a name or number; an unknown one is treated as OTHER."""
    if isinstance(named, str):
        name = named.strip().upper()
        if not _WHOLE_NUMBER.fullmatch(name):
            return LANGUAGE_NAMES.get(name, Language.OTHER)
        named = int(name)
    if isinstance(named, int) and not isinstance(named, bool):
        return _LANGUAGES.get(named, Language.OTHER)
    return Language.OTHER


# -- the binary header ----------------------------------------------------------------------------

_BINARY_HEAD = struct.Struct(">hBhii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


def _encode_binary_header(command: RemotingCommand) -> bytes:
    entries = bytearray()
    for name, value in (command.ext_fields or {}).items():
        key, text = name.encode(), value.encode()
        entries += _SHORT.pack(len(key)) + key + _INT.pack(len(text)) + text
    remark = (command.remark or "").encode()
    head = _BINARY_HEAD.pack(
        command.code, command.language, command.version, command.opaque, command.flag
    )
    return b"".join((head, _INT.pack(len(remark)), remark, _INT.pack(len(entries)), entries))


def _decode_binary_header(header: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag = _BINARY_HEAD.unpack_from(header)
        remark, at = _sized_text(header, _BINARY_HEAD.size, len(header))
        (entries,) = _INT.unpack_from(header, at)
        at += _INT.size
        end = at + entries
        if entries < 0 or end > len(header):
            raise DecodeError(f"a header of {len(header)} bytes claims {entries} bytes of fields")
        fields: dict[str, str] = {}
        while at < end:
            name, at = _short_text(header, at, end)
            value, at = _sized_text(header, at, end)
            if value is not None:
                fields[name] = value
            if len(fields) > JSON_FIELDS_MAX:
                raise DecodeError(f"a header has over {JSON_FIELDS_MAX} fields")
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"the frame's binary header is malformed: {error}") from error
    return RemotingCommand(
        code=code,
        language=_language(language),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark,
        ext_fields=fields if entries else None,
        header_type=HeaderType.BINARY,
    )


def _sized_text(header: bytes, at: int, end: int) -> tuple[str | None, int]:
    """A text after its 4-byte length; an empty one equals none."""
    (length,) = _INT.unpack_from(header, at)
    start = at + _INT.size
    if length < 0 or start + length > end:
        raise DecodeError(f"a text in a binary header claims {length} bytes")
    return header[start : start + length].decode() if length else None, start + length


def _short_text(header: bytes, at: int, end: int) -> tuple[str, int]:
    (length,) = _SHORT.unpack_from(header, at)
    start = at + _SHORT.size
    if length < 0 or start + length > end:
        raise DecodeError(f"a field name in a binary header claims {length} bytes")
    return header[start : start + length].decode(), start + length
