"""One stored message, byte for byte (docs/formats/record.md).

A *draft* is a whole record whose queue offset, position, store time and store host are zero. A
broker *stamps* these four and the checksum, and from then on the bytes never change. The checksum
of the whole record is its last property, as RocketMQ 5 writes it:

    __CRC32# 0x01 d0 d1 … d9 0x02      CRC-32 & 0x7FFFFFFF of all bytes before these twenty,
                                       ten decimal digits, the least significant first

Invariants:  `check_record` accepts the output of `encode_draft` once it is stamped
             for any bytes, only Corrupt, DecodeError or MessageIllegal is raised
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from kourou.errors import Corrupt, DecodeError, MessageIllegal
from kourou.model.limits import (
    CRC_PROPERTY_BYTES,
    PROPERTIES_SIZE_BYTES_MAX,
    TOPIC_LENGTH_MAX,
)
from kourou.model.message import Property, StoredMessage, SysFlag
from kourou.protocol import kernel
from kourou.protocol.record.compression import decompress as decompress_body
from kourou.protocol.record.layout import (
    ANY_V6,
    BLANK_MAGIC,
    BORN_V6,
    CRC_MARK,
    CRC_MASK,
    CRC_VALUE_BYTES,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    STORE_V6,
    SYS_FLAG_AT,
    V6_EXTRA_BYTES,
    Buffer,
    crc_value,
    decode_host,
    parts_of,
    verify_parts,
    widen_host,
)
from kourou.protocol.record.properties import decode_properties, find_property

_BLANK = struct.Struct(">II")
_PLACE = struct.Struct(">qq")
_LONG = struct.Struct(">q")
_COMPRESSED = int(SysFlag.COMPRESSED)
_CRC_NAME = Property.CRC32.value
_TOPICS_CACHED_MAX = 16_384
_topics: dict[bytes, str] = {}


# -- drafts ---------------------------------------------------------------------------------------


def encode_draft(
    *,
    topic: bytes,
    queue_id: int,
    body: Buffer,
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
    """A record without its position. `properties` as encoded; times in ms; hosts as `encode_host`.

    The checksum property is appended if the properties leave room for it; an existing one at their
    end (in bytes from a stored record) is replaced. The host bits of `sys_flag` are set from the
    hosts. Raises MessageIllegal for fields that the layout cannot hold.
    """
    if not 0 < len(topic) <= TOPIC_LENGTH_MAX:
        raise MessageIllegal(f"the topic has {len(topic)} bytes; 1 to {TOPIC_LENGTH_MAX} fit")
    if len(born_host) not in (HOST_V4_BYTES, HOST_V6_BYTES):
        raise MessageIllegal(f"the born host has {len(born_host)} bytes, not 8 or 20")
    try:
        made = kernel.draft(
            topic,
            queue_id,
            body,
            properties,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            store_host_v6,
            reconsume_times,
            prepared_transaction_offset,
            with_crc,
        )
    except OverflowError as error:
        raise MessageIllegal(f"a number does not fit into its field: {error}") from error
    if made is None:
        raise MessageIllegal(
            f"the properties have {len(properties)} bytes; at most "
            f"{PROPERTIES_SIZE_BYTES_MAX} are allowed"
        )
    return made


def stamp(
    buf: bytearray,
    at: int,
    *,
    queue_offset: int,
    position: int,
    store_timestamp: int,
    store_host: bytes,
) -> None:
    """Set the position and the checksum of the well-formed draft at `at`.

    An IPv4 store host is widened for a draft with room for IPv6. Raises MessageIllegal for the
    opposite.
    """
    sys_flag = int.from_bytes(buf[at + SYS_FLAG_AT : at + SYS_FLAG_AT + 4], "big")
    stored_at = at + STORE_TIMESTAMP_AT
    host_bytes = HOST_V4_BYTES
    if sys_flag & ANY_V6:
        if sys_flag & BORN_V6:
            stored_at += V6_EXTRA_BYTES
        if sys_flag & STORE_V6:
            host_bytes = HOST_V6_BYTES
            store_host = widen_host(store_host)
    if len(store_host) != host_bytes:
        raise MessageIllegal("the draft has no room for the broker's IPv6 address")
    _PLACE.pack_into(buf, at + QUEUE_OFFSET_AT, queue_offset, position)
    _LONG.pack_into(buf, stored_at, store_timestamp)
    buf[stored_at + 8 : stored_at + 8 + host_bytes] = store_host
    mark = at + int.from_bytes(buf[at : at + 4], "big") - CRC_PROPERTY_BYTES
    if buf[mark : mark + len(CRC_MARK)] == CRC_MARK and mark >= _props_at(
        buf, stored_at + 8 + host_bytes + 12
    ):
        with memoryview(buf) as view, view[at:mark] as covered:
            crc = zlib.crc32(covered) & CRC_MASK
        digits_at = mark + len(CRC_MARK)
        buf[digits_at : digits_at + CRC_VALUE_BYTES] = crc_value(crc)


def _props_at(buf: bytearray, body_length_at: int) -> int:
    """The start of the properties: a body may end in what looks like the checksum property."""
    body_length = int.from_bytes(buf[body_length_at : body_length_at + 4], "big")
    topic_length_at = body_length_at + 4 + body_length
    return topic_length_at + 1 + buf[topic_length_at] + 2


# -- checks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """A record whose structure and checksums are valid."""

    size: int
    queue_id: int
    queue_offset: int
    position: int
    sys_flag: int
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class BlankRecord:
    """A filler that closes a segment."""

    size: int


def encode_blank(size: int) -> bytes:
    """The first eight bytes of a filler of `size` bytes."""
    return _BLANK.pack(size, BLANK_MAGIC)


def record_size(buf: Buffer, at: int) -> int:
    """The TOTALSIZE field at `at`. Raises Corrupt if the bytes are too few for it."""
    if at < 0 or len(buf) - at < 4:
        raise Corrupt(f"size: {max(0, len(buf) - at)} bytes are too few for a record")
    return int.from_bytes(buf[at : at + 4], "big")


def check_record(
    buf: Buffer, at: int, end: int, position: int | None
) -> CheckedRecord | BlankRecord:
    """Check the record at `at`, which must end by `end`; `position` is its expected log position.

    Checks magic, every length, the position, the topic's encoding and the checksums. Raises Corrupt
    whose text begins with the wrong field.
    """
    end = min(end, len(buf))
    if 0 <= at <= end - _BLANK.size:
        size, magic = _BLANK.unpack_from(buf, at)
        if magic == BLANK_MAGIC:
            if not _BLANK.size <= size <= end - at:
                raise Corrupt(f"size: a filler of {size} bytes does not fit into {end - at}")
            return BlankRecord(size)
    parts = parts_of(buf, at, end)
    if position is not None and parts.position != position:
        raise Corrupt(f"position: the record at {position} has position {parts.position}")
    with memoryview(buf) as view:
        verify_parts(view, at, parts)
    _topic_of(bytes(buf[parts.topic_at : parts.topic_end]))
    return CheckedRecord(
        parts.size,
        parts.queue_id,
        parts.queue_offset,
        parts.position,
        parts.sys_flag,
        parts.store_timestamp,
    )


# -- reading --------------------------------------------------------------------------------------


def decode_record(
    buf: Buffer,
    at: int = 0,
    *,
    verify: bool = True,
    decompress: bool = True,
) -> StoredMessage:
    """The record at `at` as a message; the body is decompressed unless `decompress` is False.

    The checksum property protects the bytes and is not returned among the properties. Raises
    Corrupt or DecodeError for bytes that are not a record, or fail their checksum with `verify`.
    """
    with memoryview(buf) as view:
        parts = parts_of(view, at, len(view))
        if verify:
            verify_parts(view, at, parts)
        body = view[parts.body_at : parts.body_end].tobytes()
        if decompress and parts.sys_flag & _COMPRESSED:
            body = decompress_body(parts.sys_flag, body)
        topic = view[parts.topic_at : parts.topic_end].tobytes()
        properties = decode_properties(view[parts.props_at : at + parts.size])
        properties.pop(_CRC_NAME, None)
    return StoredMessage(
        _topics.get(topic) or _topic_of(topic),
        body,
        properties,
        parts.flag,
        parts.queue_id,
        parts.queue_offset,
        parts.position,
        parts.size,
        parts.sys_flag,
        parts.born_timestamp,
        decode_host(parts.born_host),
        parts.store_timestamp,
        decode_host(parts.store_host),
        parts.crc,
        parts.reconsume_times,
        parts.prepared,
    )


def _topic_of(raw: bytes) -> str:
    """A topic's name, cached because the same few names are decoded again and again."""
    known = _topics.get(raw)
    if known is None:
        try:
            known = raw.decode()
        except UnicodeDecodeError as error:
            raise DecodeError("topic: it is not UTF-8") from error
        if len(_topics) >= _TOPICS_CACHED_MAX:
            _topics.clear()
        _topics[raw] = known
    return known


# -- the same message for another queue -----------------------------------------------------------


# Body, born time and host, flags, failed attempts and keys belong to the message and are kept.
# Offset, position, store time and store host belong to one copy; the new copy gets its own.

Target = tuple[str, int]
Changes = tuple[tuple[bytes, bytes | None], ...]
"""Names and new values of properties, encoded; None removes one."""

_REAL_TOPIC = Property.REAL_TOPIC.encode()
_REAL_QUEUE = Property.REAL_QID.encode()


def moved_draft(
    record: Buffer,
    target: Target,
    changes: Changes = (),
    *,
    cleared: int = 0,
    added: int = 0,
    reconsume_times: int = -1,
    prepared: int = 0,
) -> bytes:
    """The record, or draft, as a draft for the queue `target`, with these changes of its
    properties.

    An existing property keeps its place, new ones are appended. `cleared` and `added` are bits of
    the flags, without those of the hosts; `reconsume_times` replaces its own unless it is negative.
    Raises MessageIllegal for a topic or properties that do not fit.
    """
    topic = target[0].encode()
    if not 0 < len(topic) <= TOPIC_LENGTH_MAX:
        raise MessageIllegal(f"the topic has {len(topic)} bytes; 1 to {TOPIC_LENGTH_MAX} fit")
    moved = kernel.move(
        record, topic, target[1], changes, cleared, added, reconsume_times, prepared
    )
    if moved is None:
        raise MessageIllegal(
            "the properties have no room for those that the broker adds; at most "
            f"{PROPERTIES_SIZE_BYTES_MAX} bytes are allowed"
        )
    return moved


def real_target(properties: bytes) -> Target | None:
    """The queue that a message with these encoded properties was originally sent to.

    None if they do not say, or if that is not a possible queue.
    """
    topic = find_property(properties, _REAL_TOPIC)
    queue = find_property(properties, _REAL_QUEUE)
    if not topic or len(topic) > TOPIC_LENGTH_MAX or queue is None:
        return None
    if not queue.isdigit() or len(queue) > 9:
        return None
    try:
        return topic.decode(), int(queue)
    except UnicodeDecodeError:
        return None
