"""One stored message, byte for byte (docs/formats/record.md; fact sheet §4.1).

Lives here: the layout, drafts (records without their place), stamping, checking and decoding of
one.
May not live here: many at once (kourou.protocol.record_batch), files.

All integers are big-endian. A *draft* is a whole record whose queue offset, position, store time
and store host are zero; a broker *stamps* these four and the checksum, and from then on the bytes
never change. The checksum of the whole record is its last property, as RocketMQ 5 writes it:

    __CRC32# 0x01 d0 d1 … d9 0x02      CRC-32 & 0x7FFFFFFF of all bytes before these twenty,
                                       ten decimal digits, the least significant first
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from dataclasses import dataclass

from kourou.errors import Corrupt, DecodeError, MessageIllegal
from kourou.model.limits import (
    CRC_PROPERTY_BYTES,
    PROPERTIES_SIZE_BYTES_MAX,
    RECORD_FIXED_BYTES,
    TOPIC_LENGTH_MAX,
)
from kourou.model.message import StoredMessage
from kourou.model.sysflag import SysFlag
from kourou.protocol.compression import decompress as decompress_body
from kourou.protocol.properties import decode_properties

Buffer = bytes | bytearray | memoryview
Host = tuple[str, int]

MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
MASK = 0x7FFFFFFF

QUEUE_ID_AT = 12
QUEUE_OFFSET_AT = 20
POSITION_AT = 28
SYS_FLAG_AT = 36
BORN_TIMESTAMP_AT = 40
BORN_HOST_AT = 48
HOST_V4_BYTES = 8
HOST_V6_BYTES = 20

CRC_MARK = b"__CRC32#\x01"
CRC_PLACEHOLDER = CRC_MARK + b"0000000000\x02"
assert len(CRC_PLACEHOLDER) == CRC_PROPERTY_BYTES

_HEAD = struct.Struct(">IIIiiqqiq")  # up to the born host
_AFTER_HOSTS = struct.Struct(">iqi")
_BLANK = struct.Struct(">II")
_PLACE = struct.Struct(">qq")
_LONG = struct.Struct(">q")
_HEAD_V4 = struct.Struct(">IIIiiqqiq8sq8siqi")  # 88 bytes: everything before the body
assert _HEAD_V4.size == RECORD_FIXED_BYTES - 3


def body_crc(body: Buffer) -> int:
    """CRC-32 of a stored body without its top bit."""
    return zlib.crc32(body) & MASK


def encode_host(host: Host) -> bytes:
    """Address and port as a record has them: 8 bytes for IPv4, 20 for IPv6; a name becomes 0.0.0.0."""
    try:
        packed = ipaddress.ip_address(host[0]).packed
    except ValueError:
        packed = bytes(4)
    return packed + host[1].to_bytes(4, "big")


def decode_host(raw: Buffer) -> Host:
    """The inverse of `encode_host`; raises DecodeError for another length than 8 or 20."""
    data = bytes(raw)
    if len(data) not in (HOST_V4_BYTES, HOST_V6_BYTES):
        raise DecodeError(f"a host has 8 or 20 bytes, this one has {len(data)}")
    if len(data) == HOST_V4_BYTES:
        return f"{data[0]}.{data[1]}.{data[2]}.{data[3]}", int.from_bytes(data[4:], "big")
    return str(ipaddress.ip_address(data[:16])), int.from_bytes(data[16:], "big")


def encode_draft(
    *,
    topic: bytes,
    queue_id: int,
    body: bytes,
    properties: bytes,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int,
    born_host: bytes,
    store_host_v6: bool = False,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    with_crc: bool = True,
) -> bytes:
    """A record without its place. `properties` as encoded; times in ms; hosts as `encode_host`.

    The checksum property is appended where the properties leave room for it. Raises MessageIllegal
    for a topic or properties that the layout cannot hold.
    """
    if not 0 < len(topic) <= TOPIC_LENGTH_MAX:
        raise MessageIllegal(f"the topic has {len(topic)} bytes; 1 to {TOPIC_LENGTH_MAX} fit")
    if with_crc:
        properties = _with_placeholder(properties)
    if len(properties) > PROPERTIES_SIZE_BYTES_MAX:
        raise MessageIllegal(
            f"the properties have {len(properties)} bytes; at most "
            f"{PROPERTIES_SIZE_BYTES_MAX} are allowed"
        )
    store_host = bytes(HOST_V4_BYTES)
    if len(born_host) == HOST_V6_BYTES:
        sys_flag |= SysFlag.BORN_HOST_V6
    if store_host_v6:
        sys_flag |= SysFlag.STORE_HOST_V6
        store_host = bytes(HOST_V6_BYTES)
    size = (
        RECORD_FIXED_BYTES
        - 2 * HOST_V4_BYTES
        + len(born_host)
        + len(store_host)
        + len(body)
        + len(topic)
        + len(properties)
    )
    crc = zlib.crc32(body) & MASK
    if len(born_host) + len(store_host) == 2 * HOST_V4_BYTES:
        head = _HEAD_V4.pack(
            size,
            MAGIC,
            crc,
            queue_id,
            flag,
            0,
            0,
            sys_flag,
            born_timestamp,
            born_host,
            0,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
    else:
        head = b"".join(
            (
                _HEAD.pack(size, MAGIC, crc, queue_id, flag, 0, 0, sys_flag, born_timestamp),
                born_host,
                bytes(8),
                store_host,
                _AFTER_HOSTS.pack(reconsume_times, prepared_transaction_offset, len(body)),
            )
        )
    return b"".join(
        (
            head,
            body,
            len(topic).to_bytes(1, "big"),
            topic,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    )


def _with_placeholder(properties: bytes) -> bytes:
    joined = (
        properties + b"\x02" + CRC_PLACEHOLDER
        if properties and not properties.endswith(b"\x02")
        else properties + CRC_PLACEHOLDER
    )
    return joined if len(joined) <= PROPERTIES_SIZE_BYTES_MAX else properties


def crc_digits(crc: int) -> bytes:
    """Ten decimal digits, the least significant first."""
    return b"%010d" % crc if crc == 0 else (b"%010d" % crc)[::-1]


def hosts(sys_flag: int) -> tuple[int, int]:
    """Bytes of the born host and of the store host."""
    return (
        HOST_V6_BYTES if sys_flag & SysFlag.BORN_HOST_V6 else HOST_V4_BYTES,
        HOST_V6_BYTES if sys_flag & SysFlag.STORE_HOST_V6 else HOST_V4_BYTES,
    )


def stamp(
    buf: bytearray,
    at: int,
    *,
    queue_offset: int,
    position: int,
    store_timestamp: int,
    store_host: bytes,
) -> None:
    """Give the draft at `at` its place and its checksum; the draft is known to be well formed."""
    size = int.from_bytes(buf[at : at + 4], "big")
    sys_flag = int.from_bytes(buf[at + SYS_FLAG_AT : at + SYS_FLAG_AT + 4], "big")
    born, store = hosts(sys_flag)
    if len(store_host) != store:
        raise MessageIllegal("the draft was made for a store host of the other address family")
    _PLACE.pack_into(buf, at + QUEUE_OFFSET_AT, queue_offset, position)
    stored_at = at + BORN_HOST_AT + born
    _LONG.pack_into(buf, stored_at, store_timestamp)
    buf[stored_at + 8 : stored_at + 8 + store] = store_host
    end = at + size
    mark = end - CRC_PROPERTY_BYTES
    if buf[mark : mark + len(CRC_MARK)] == CRC_MARK:
        with memoryview(buf) as view:
            crc = zlib.crc32(view[at:mark]) & MASK
        buf[mark + len(CRC_MARK) : end - 1] = crc_digits(crc)


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """A record whose structure and checksums hold."""

    size: int
    queue_id: int
    queue_offset: int
    position: int
    sys_flag: int
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class Blank:
    """A filler that closes a segment."""

    size: int


def encode_blank(size: int) -> bytes:
    """The eight bytes that begin a filler of `size` bytes."""
    return _BLANK.pack(size, BLANK_MAGIC)


def record_size(buf: Buffer, at: int) -> int:
    """TOTALSIZE of what begins at `at`; raises Corrupt if not even that is there."""
    if len(buf) - at < 4:
        raise Corrupt(f"{len(buf) - at} bytes are too few for a record")
    return int.from_bytes(buf[at : at + 4], "big")


@dataclass(slots=True)
class _Fields:
    """Where things are inside one record, checked to lie inside it."""

    size: int
    crc: int
    queue_id: int
    flag: int
    queue_offset: int
    position: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[int, int]
    store_timestamp: int
    store_host: tuple[int, int]
    reconsume_times: int
    prepared: int
    body: tuple[int, int]
    topic: tuple[int, int]
    properties: tuple[int, int]


def _fields(buf: Buffer, at: int, end: int) -> _Fields:
    available = end - at
    if available < RECORD_FIXED_BYTES:
        raise Corrupt(f"{available} bytes are too few for a record")
    size, magic, crc, queue_id, flag, queue_offset, position, sys_flag, born = _HEAD.unpack_from(
        buf, at
    )
    if magic != MAGIC:
        raise Corrupt(f"the magic number is {magic:#010x}, not {MAGIC:#010x}")
    born_bytes, store_bytes = hosts(sys_flag)
    fixed = RECORD_FIXED_BYTES - 2 * HOST_V4_BYTES + born_bytes + store_bytes
    if not fixed <= size <= available:
        raise Corrupt(f"the size {size} does not lie between {fixed} and {available}")
    born_at = at + BORN_HOST_AT
    stored_at = born_at + born_bytes
    (store_timestamp,) = _LONG.unpack_from(buf, stored_at)
    host_at = stored_at + 8
    after = host_at + store_bytes
    reconsume_times, prepared, body_length = _AFTER_HOSTS.unpack_from(buf, after)
    body_at = after + _AFTER_HOSTS.size
    if not 0 <= body_length <= size - fixed:
        raise Corrupt(f"the body length {body_length} does not fit into {size} bytes")
    topic_at = body_at + body_length + 1
    topic_length = buf[topic_at - 1]
    if body_length + topic_length > size - fixed or topic_length > TOPIC_LENGTH_MAX:
        raise Corrupt(f"the topic length {topic_length} does not fit into {size} bytes")
    properties_at = topic_at + topic_length + 2
    properties_length = int.from_bytes(buf[properties_at - 2 : properties_at], "big")
    if properties_at + properties_length != at + size:
        raise Corrupt(f"the parts add up to {properties_at + properties_length - at}, not {size}")
    return _Fields(
        size,
        crc,
        queue_id,
        flag,
        queue_offset,
        position,
        sys_flag,
        born,
        (born_at, stored_at),
        store_timestamp,
        (host_at, after),
        reconsume_times,
        prepared,
        (body_at, body_at + body_length),
        (topic_at, topic_at + topic_length),
        (properties_at, properties_at + properties_length),
    )


def _verify(view: memoryview, at: int, fields: _Fields) -> None:
    end = at + fields.size
    mark = end - CRC_PROPERTY_BYTES
    if view[mark : mark + len(CRC_MARK)] == CRC_MARK:
        wanted = crc_digits(zlib.crc32(view[at:mark]) & MASK)
        if view[mark + len(CRC_MARK) : end - 1] != wanted or view[end - 1] != 2:
            raise Corrupt("the record's checksum does not match its bytes")
        return
    if fields.size > 2 * CRC_PROPERTY_BYTES and _resembles_crc(bytes(view[mark:end])):
        raise Corrupt("the record's checksum property is damaged")
    body = view[fields.body[0] : fields.body[1]]
    if len(body) and zlib.crc32(body) & MASK != fields.crc:
        raise Corrupt("the body's checksum does not match its bytes")


def _resembles_crc(tail: bytes) -> bool:
    """A checksum property with a byte or two wrong: a damaged record must not pass as one without."""
    same = sum(a == b for a, b in zip(tail, CRC_MARK, strict=False))
    digits = sum(48 <= byte <= 57 for byte in tail[len(CRC_MARK) : -1])
    return same + digits + (tail[-1] == 2) >= CRC_PROPERTY_BYTES - 2


def check_record(buf: Buffer, at: int, end: int, position: int | None) -> CheckedRecord | Blank:
    """Check what begins at `at` and must end by `end`; `position` is where it claims to lie.

    Raises Corrupt that names the field that is wrong.
    """
    if end - at >= _BLANK.size:
        size, magic = _BLANK.unpack_from(buf, at)
        if magic == BLANK_MAGIC:
            if not _BLANK.size <= size <= end - at:
                raise Corrupt(f"a filler of {size} bytes does not fit into {end - at}")
            return Blank(size)
    fields = _fields(buf, at, end)
    if position is not None and fields.position != position:
        raise Corrupt(f"the record at {position} says that it lies at {fields.position}")
    with memoryview(buf) as view:
        _verify(view, at, fields)
    return CheckedRecord(
        fields.size,
        fields.queue_id,
        fields.queue_offset,
        fields.position,
        fields.sys_flag,
        fields.store_timestamp,
    )


def decode_record(
    buf: Buffer, at: int = 0, *, verify: bool = True, decompress: bool = True
) -> StoredMessage:
    """The record at `at` as a message; the body is decompressed unless told otherwise.

    Raises Corrupt or DecodeError for bytes that are no record, or fail their checksum with `verify`.
    """
    fields = _fields(buf, at, len(buf))
    with memoryview(buf) as view:
        if verify:
            _verify(view, at, fields)
        body = bytes(view[slice(*fields.body)])
        if decompress and fields.sys_flag & SysFlag.COMPRESSED:
            body = decompress_body(fields.sys_flag, body)
        try:
            topic = bytes(view[slice(*fields.topic)]).decode()
        except UnicodeDecodeError as error:
            raise DecodeError("the topic is not UTF-8") from error
        return StoredMessage(
            topic=topic,
            body=body,
            properties=decode_properties(view[slice(*fields.properties)]),
            flag=fields.flag,
            queue_id=fields.queue_id,
            offset=fields.queue_offset,
            position=fields.position,
            size=fields.size,
            sys_flag=fields.sys_flag,
            born_timestamp=fields.born_timestamp,
            born_host=decode_host(view[slice(*fields.born_host)]),
            store_timestamp=fields.store_timestamp,
            store_host=decode_host(view[slice(*fields.store_host)]),
            body_crc=fields.crc,
            reconsume_times=fields.reconsume_times,
            prepared_transaction_offset=fields.prepared,
        )
