"""The layout of a stored record (docs/formats/record.md).

All integers are big-endian and signed. Two fields have two widths: a host is 8 bytes (IPv4) or 20
(IPv6), depending on two bits of SYSFLAG, and the fields after it move by 12.

Invariant: a length read from the bytes is checked against the size before it is used.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kourou.errors import BadRequest, Corrupt, DecodeError, MessageIllegal
from kourou.model.limits import CRC_PROPERTY_BYTES, RECORD_FIXED_BYTES, TOPIC_LENGTH_MAX
from kourou.model.message import SysFlag

Buffer = bytes | bytearray | memoryview
Host = tuple[str, int]

MAGIC = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
"""RocketMQ 5.1 and later, for topics of more than 127 bytes; 4.9 and Kourou refuse it."""
BLANK_MAGIC = 0xCBD43194
CRC_MASK = 0x7FFFFFFF
"""Checksums are stored without their top bit, because Java has no unsigned integers."""

BODY_CRC_AT = 8
QUEUE_ID_AT = 12
QUEUE_OFFSET_AT = 20
POSITION_AT = 28
SYS_FLAG_AT = 36
BORN_HOST_AT = 48
STORE_TIMESTAMP_AT = 56
"""With an IPv4 born host."""
HEAD_BYTES = 88
"""Everything before the body with IPv4 hosts."""

HOST_V4_BYTES = 8
HOST_V6_BYTES = 20
V6_EXTRA_BYTES = HOST_V6_BYTES - HOST_V4_BYTES
BORN_V6 = int(SysFlag.BORN_HOST_V6)
STORE_V6 = int(SysFlag.STORE_HOST_V6)
ANY_V6 = BORN_V6 | STORE_V6
_MAPPED = bytes(10) + b"\xff\xff"

CRC_MARK = b"__CRC32#\x01"
CRC_PLACEHOLDER = CRC_MARK + b"0000000000\x02"
CRC_DIGITS = 10
CRC_VALUE_BYTES = CRC_DIGITS + 1

HEAD_V4 = struct.Struct(">IIIiiqqiq8sq8siqi")
_HEAD = struct.Struct(">IIIiiqqiq")  # up to the born host
_LONG = struct.Struct(">q")
_AFTER_HOSTS = struct.Struct(">iqi")

assert HEAD_V4.size == HEAD_BYTES == RECORD_FIXED_BYTES - 3
assert len(CRC_PLACEHOLDER) == CRC_PROPERTY_BYTES


# -- hosts ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def encode_host(host: Host) -> bytes:
    """Address and port as in a record: 8 bytes for IPv4, 20 for IPv6; a name becomes 0.0.0.0.

    Raises BadRequest for a port outside 0 to 65535.
    """
    address, port = host
    if not 0 <= port <= 0xFFFF:
        raise BadRequest(f"the port {port} is not one of 0 to 65535")
    try:
        packed = ipaddress.ip_address(address).packed
    except ValueError:
        packed = bytes(4)
    return packed + port.to_bytes(4, "big")


@lru_cache(maxsize=4096)
def _host_of(raw: bytes) -> Host:
    if len(raw) == HOST_V4_BYTES:
        return f"{raw[0]}.{raw[1]}.{raw[2]}.{raw[3]}", int.from_bytes(raw[4:], "big")
    if len(raw) == HOST_V6_BYTES:
        address = ipaddress.IPv6Address(raw[:16])
        # A widened IPv4 address is returned as IPv4, as Java does.
        return str(address.ipv4_mapped or address), int.from_bytes(raw[16:], "big")
    raise DecodeError(f"a host has 8 or 20 bytes, this one has {len(raw)}")


def decode_host(raw: Buffer) -> Host:
    """The inverse of `encode_host`. Raises DecodeError for a length other than 8 or 20."""
    return _host_of(bytes(raw))


def widen_host(host: bytes) -> bytes:
    """An IPv4 host in the width of an IPv6 one (`::ffff:a.b.c.d`); an IPv6 host unchanged."""
    return _MAPPED + host if len(host) == HOST_V4_BYTES else host


# -- checksums ------------------------------------------------------------------------------------


def masked_crc(data: Buffer) -> int:
    """CRC-32 without its top bit; 0 for no bytes."""
    return zlib.crc32(data) & CRC_MASK


def crc_value(crc: int) -> bytes:
    """The checksum property's value: ten decimal digits, the least significant first, and 0x02."""
    return (b"\x02%010d" % crc)[::-1]


# -- the parts of one record ----------------------------------------------------------------------


class Parts(NamedTuple):
    """The fields of one record; `*_at` are indexes into the buffer, times are ms."""

    size: int
    crc: int
    queue_id: int
    flag: int
    queue_offset: int
    position: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared: int
    body_at: int
    body_end: int
    topic_at: int
    topic_end: int
    props_at: int


def parts_of(buf: Buffer, at: int, end: int) -> Parts:
    """Parse the record that begins at `at` and must end by `end` (an index inside the buffer).

    Raises Corrupt that names the wrong field; checksums are not checked.
    """
    if at < 0 or end > len(buf) or end - at < RECORD_FIXED_BYTES:
        raise Corrupt(f"size: {max(0, min(end, len(buf)) - at)} bytes are too few for a record")
    head = HEAD_V4.unpack_from(buf, at)
    size, magic, sys_flag = head[0], head[1], head[7]
    if magic != MAGIC:
        raise Corrupt(_wrong_magic(magic))
    body_at = at + HEAD_BYTES
    fixed = RECORD_FIXED_BYTES
    if sys_flag & ANY_V6:
        extra = _extra(sys_flag)
        fixed += extra
        body_at += extra
        if end - at < fixed:
            raise Corrupt(f"size: {end - at} bytes are too few for a record with IPv6 hosts")
        head = _head_v6(buf, at, sys_flag)
    if not fixed <= size <= end - at:
        raise Corrupt(f"size: {size} does not lie between {fixed} and {end - at}")
    body_length = head[14]
    spare = size - fixed - body_length
    if body_length < 0 or spare < 0:
        raise Corrupt(f"body length: {body_length} does not fit into {size} bytes")
    body_end = body_at + body_length
    topic_length = buf[body_end]
    if not 0 < topic_length <= min(spare, TOPIC_LENGTH_MAX):
        raise Corrupt(f"topic length: {topic_length} does not fit into {size} bytes")
    topic_end = body_end + 1 + topic_length
    props_length = buf[topic_end] << 8 | buf[topic_end + 1]
    if props_length != spare - topic_length or props_length > 0x7FFF:
        raise Corrupt(
            f"properties length: {props_length}, but {spare - topic_length} bytes are left"
        )
    places = (body_at, body_end, body_end + 1, topic_end, topic_end + 2)
    return Parts._make((size, *head[2:14], *places))


def _extra(sys_flag: int) -> int:
    """The number of bytes by which IPv6 hosts move the fields after them."""
    return V6_EXTRA_BYTES * (bool(sys_flag & BORN_V6) + bool(sys_flag & STORE_V6))


def _head_v6(buf: Buffer, at: int, sys_flag: int) -> tuple[Any, ...]:
    """What `HEAD_V4` unpacks, for a record with at least one IPv6 host."""
    born_bytes = HOST_V6_BYTES if sys_flag & BORN_V6 else HOST_V4_BYTES
    store_bytes = HOST_V6_BYTES if sys_flag & STORE_V6 else HOST_V4_BYTES
    stored_at = at + BORN_HOST_AT + born_bytes
    host_at = stored_at + 8
    return (
        *_HEAD.unpack_from(buf, at),
        bytes(buf[at + BORN_HOST_AT : stored_at]),
        *_LONG.unpack_from(buf, stored_at),
        bytes(buf[host_at : host_at + store_bytes]),
        *_AFTER_HOSTS.unpack_from(buf, host_at + store_bytes),
    )


def _wrong_magic(magic: int) -> str:
    if magic == MAGIC_V2:
        return "magic: a version 2 record of RocketMQ 5.1 or later; only version 1 is read"
    return f"magic: {magic:#010x}, not {MAGIC:#010x}"


def verify_parts(view: memoryview, at: int, parts: Parts) -> bool:
    """Verify the checksum of a record: that of all its bytes if it has one, else that of its body.

    Returns whether all bytes are protected. Raises Corrupt. A checksum property with one or two
    wrong bytes counts as damaged: a damaged record must not pass as one that never had a checksum.
    """
    end = at + parts.size
    mark = end - CRC_PROPERTY_BYTES
    if mark >= parts.props_at:
        tail = view[mark:end].tobytes()
        if tail[: len(CRC_MARK)] == CRC_MARK:
            if tail[len(CRC_MARK) :] != crc_value(zlib.crc32(view[at:mark]) & CRC_MASK):
                raise Corrupt("record checksum: it does not match the record's bytes")
            return True
        if _resembles_crc(tail):
            raise Corrupt("record checksum: its property is damaged")
    if zlib.crc32(view[parts.body_at : parts.body_end]) & CRC_MASK != parts.crc:
        raise Corrupt("body checksum: it does not match the body's bytes")
    return False


def _resembles_crc(tail: bytes) -> bool:
    """True if these twenty bytes are a checksum property with at most two wrong bytes."""
    if tail[:2] != b"__" and tail[-1] != 2 and tail[2:8] != b"CRC32#":
        return False
    same = sum(a == b for a, b in zip(tail, CRC_MARK, strict=False))
    digits = sum(48 <= byte <= 57 for byte in tail[len(CRC_MARK) : -1])
    return same + digits + (tail[-1] == 2) >= CRC_PROPERTY_BYTES - 2


def encode_head(
    first: tuple[int, ...], born_host: bytes, store_host: bytes, last: tuple[int, int, int]
) -> bytes:
    """Everything before the body of a draft; its store time is zero.

    `first` are the fields up to the born host, `last` those after the store host.
    """
    if len(born_host) + len(store_host) == 2 * HOST_V4_BYTES:
        return HEAD_V4.pack(*first, born_host, 0, store_host, *last)
    return b"".join((_HEAD.pack(*first), born_host, bytes(8), store_host, _AFTER_HOSTS.pack(*last)))


# -- the body of a batch send ---------------------------------------------------------------------


CUT, LENGTHS = 11, 12
"""Problems of a message in a batch: it is cut off; its lengths do not agree."""

ITEM_HEAD = struct.Struct(">iiiii")
ITEM_FIXED_BYTES = 22
"""The body has several messages of one topic, encoded one after the other:

    item = size(4) magic(4, 0) crc(4, 0) flag(4) bodyLength(4) body propertiesLength(2) properties

Big-endian; `size` counts itself and everything after it: 22 + body + properties.
"""


def encode_batch(items: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    """The body of a batch send with the (flag, body, properties) of each message."""
    parts: list[bytes] = []
    for flag, body, properties in items:
        parts += (
            ITEM_HEAD.pack(ITEM_FIXED_BYTES + len(body) + len(properties), 0, 0, flag, len(body)),
            body,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    return b"".join(parts)


def split_batch(encoded: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (flag, body, properties) of each message. Raises MessageIllegal that names the item."""
    at = number = 0
    while at < len(encoded):
        problem, body_at, properties_at, end = batch_item(encoded, at)
        if problem == CUT:
            raise MessageIllegal(f"message {number} of the batch is cut off after byte {at}")
        if problem == LENGTHS:
            raise MessageIllegal(f"message {number} of the batch has lengths that do not agree")
        flag = int.from_bytes(encoded[at + 12 : at + 16], "big", signed=True)
        yield flag, encoded[body_at : properties_at - 2], encoded[properties_at:end]
        at = end
        number += 1


def batch_item(encoded: bytes, at: int) -> tuple[int, int, int, int]:
    """The message at `at`: 0, the start of its body and of its properties, its end.

    In place of the 0: CUT or LENGTHS.
    """
    if len(encoded) - at < ITEM_FIXED_BYTES:
        return CUT, 0, 0, 0
    size, _, _, _, body_length = ITEM_HEAD.unpack_from(encoded, at)
    body_at = at + ITEM_HEAD.size
    properties_at = body_at + body_length + 2
    if not 0 <= body_length <= size - ITEM_FIXED_BYTES or at + size > len(encoded):
        return LENGTHS, 0, 0, 0
    length = int.from_bytes(encoded[properties_at - 2 : properties_at], "big")
    if size != ITEM_FIXED_BYTES + body_length + length:
        return LENGTHS, 0, 0, 0
    return 0, body_at, properties_at, at + size
