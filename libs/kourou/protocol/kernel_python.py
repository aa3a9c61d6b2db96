"""The record kernel in Python: what each function does, and the fallback without a compiler.

Lives here: the functions of the record kernel, record by record, by the rules of
kourou.protocol.record_layout. May not live here: the choice between the two kernels
(kourou.protocol.kernel), errors and their words (record_columns, record_batch).

State: none.

Numbers cross as buffers of native 64-bit integers. A *table* has `FIELDS` columns, one after the
other, each with one number a record; `*_at` and `*_end` are indexes into the bytes, times are ms.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias, cast

from kourou.errors import Corrupt
from kourou.model.limits import CRC_PROPERTY_BYTES, PROPERTIES_SIZE_BYTES_MAX
from kourou.model.message import Property
from kourou.model.sysflag import SysFlag
from kourou.protocol.hashing import index_hash, java_hash
from kourou.protocol.properties import labels
from kourou.protocol.record_layout import (
    BORN_V6,
    CRC_MARK,
    CRC_MASK,
    CRC_VALUE_BYTES,
    HOST_V6_BYTES,
    STORE_TIMESTAMP_AT,
    STORE_V6,
    V6_EXTRA_BYTES,
    Buffer,
    Parts,
    crc_value,
    parts_of,
    resembles_crc,
    widen_host,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VERSION = 1

Column: TypeAlias = "Buffer | npt.NDArray[np.int64] | npt.NDArray[np.uint8]"
"""Bytes, or an array of them or of 64-bit integers, in one piece."""

FIELDS = (
    "start",
    "size",
    "crc",
    "queue_id",
    "flag",
    "queue_offset",
    "position",
    "sys_flag",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "prepared",
    "body_at",
    "body_end",
    "topic_end",
)

STRUCTURE, TOO_LARGE, TRANSACTIONAL, NO_CRC, DAMAGED = 1, 2, 3, 4, 5
"""What may be wrong with a draft; 0 is nothing."""

BAD, WHOLE, BODY = 0, 1, 2
"""What `verify` says: the record is bad; it matches its checksum; its body matches its own, and
there is none of the whole record."""

CRC_ROOM_FROM = PROPERTIES_SIZE_BYTES_MAX - CRC_PROPERTY_BYTES
"""A draft whose properties are at least this long may have had no room for the checksum."""

_TRANSACTION = int(SysFlag.TRANSACTION_MASK)
_COMMIT = int(SysFlag.TRANSACTION_COMMIT)
_UNIT = struct.Struct(">qiq")
_DELAY = Property.DELAY.encode() + b"\x01"
_TRAN_MSG = Property.TRAN_MSG.encode() + b"\x01"


def read(records: Column, starts: Column, sizes: Column) -> tuple[bytearray, int]:
    """The table of the records at these places, and -1; or the index of the first that is none.

    Only the structure is checked. Places may lie anywhere.
    """
    view = _view(records)
    found: list[tuple[int, Parts]] = []
    for index, (at, size) in enumerate(zip(_numbers(starts), _numbers(sizes), strict=True)):
        parts = _parts(view, at, size)
        if parts is None:
            return bytearray(), index
        found.append((at, parts))
    return _table(found), -1


def scan(records: Column) -> tuple[bytearray, int]:
    """The table of the records back to back from byte 0, and where the first bytes are that are
    none."""
    view = _view(records)
    found: list[tuple[int, Parts]] = []
    at = 0
    while True:
        try:
            parts = parts_of(view, at, len(view))
        except Corrupt:
            return _table(found), at
        found.append((at, parts))
        at += parts.size


def check_drafts(
    records: Column, sizes: Column, body_size_max: int
) -> tuple[bytearray, bytearray, int, int]:
    """The table of drafts of these sizes, back to back; which of them may move; 0 and 0.

    Or, in place of the zeros, what is wrong and with which draft first; then the rest means
    nothing. A draft may move if it may have to be stored in another topic first, because it is
    delayed or part of a transaction.
    """
    view = _view(records)
    found: list[tuple[int, Parts]] = []
    moves = bytearray()
    at = 0
    for index, size in enumerate(_numbers(sizes)):
        parts = _parts(view, at, size)
        if parts is None:
            return bytearray(), moves, STRUCTURE, index
        properties = bytes(view[parts.props_at : at + size])
        problem = _draft_problem(view, parts, properties, body_size_max)
        if problem:
            return bytearray(), moves, problem, index
        found.append((at, parts))
        moves.append(_DELAY in properties or _TRAN_MSG in properties)
        at += size
    return _table(found), moves, 0, 0


def verify(
    records: Column,
    starts: Column,
    sizes: Column,
    positions: Column | None = None,
    topic: Column | None = None,
    queue_id: int = 0,
    offsets: Column | None = None,
) -> bytearray:
    """For each of these places, is a whole record there: BAD, WHOLE or BODY.

    With `positions` each must say that it lies there in the log; with a `topic` it must be of that
    topic and queue, and have its one of `offsets`.
    """
    view = _view(records)
    good = bytearray()
    places = None if positions is None else _numbers(positions)
    numbers = None if offsets is None else _numbers(offsets)
    for index, (at, size) in enumerate(zip(_numbers(starts), _numbers(sizes), strict=True)):
        parts = _parts(view, at, size)
        good.append(BAD)
        if parts is None or (places is not None and parts.position != places[index]):
            continue
        if topic is not None:
            there = None if numbers is None else numbers[index]
            if (parts.queue_id, parts.queue_offset) != (queue_id, there):
                continue
            if view[parts.topic_at : parts.topic_end] != topic:
                continue
        good[-1] = _holds(view, at, parts)
    return good


def stamp(
    records: Column,
    sizes: Column,
    offsets: Column,
    positions: Column,
    store_ms: int,
    host: bytes,
    queue_ids: Column | None = None,
) -> int:
    """Give drafts of these sizes, back to back from byte 0, their places and their checksums.

    Returns -1, or the index of the first draft that is none or has no room for an IPv6 host; then
    nothing has changed. An IPv4 host is widened for a draft with room for IPv6.
    """
    with _view(records) as view:
        at = 0
        found: list[tuple[int, Parts]] = []
        for index, size in enumerate(_numbers(sizes)):
            parts = _parts(view, at, size)
            if parts is None:
                return index
            if len(host) == HOST_V6_BYTES and not parts.sys_flag & STORE_V6:
                return index
            found.append((at, parts))
            at += size
        offset_of, position_of = _numbers(offsets), _numbers(positions)
        queue_of = None if queue_ids is None else _numbers(queue_ids)
        for index, (at, parts) in enumerate(found):
            if queue_of is not None:
                view[at + 12 : at + 16] = (queue_of[index] & 0xFFFFFFFF).to_bytes(4, "big")
            view[at + 20 : at + 28] = offset_of[index].to_bytes(8, "big", signed=True)
            view[at + 28 : at + 36] = position_of[index].to_bytes(8, "big", signed=True)
            _stamp_end(view, at, parts, store_ms, host)
    return -1


def _stamp_end(view: memoryview, at: int, parts: Parts, store_ms: int, host: bytes) -> None:
    stored_at = at + STORE_TIMESTAMP_AT + (V6_EXTRA_BYTES if parts.sys_flag & BORN_V6 else 0)
    if parts.sys_flag & STORE_V6:
        host = widen_host(host)
    view[stored_at : stored_at + 8] = store_ms.to_bytes(8, "big", signed=True)
    view[stored_at + 8 : stored_at + 8 + len(host)] = host
    end = at + parts.size
    mark = end - CRC_PROPERTY_BYTES
    if mark >= parts.props_at and view[mark : mark + len(CRC_MARK)] == CRC_MARK:
        view[end - CRC_VALUE_BYTES : end] = crc_value(zlib.crc32(view[at:mark]) & CRC_MASK)


def project(records: Column, table: Column) -> tuple[bytearray, bytearray, bytearray]:
    """What queues and key index keep of the records of a table.

    Returns the hash of each record's tags (0 for none), and for each key of each record the hash of
    `topic#key` (32 bits, not negative) and the number of its record. A record's unique key comes
    first, then its business keys in the producer's order, repeated ones too.
    """
    view = _view(records)
    column = _numbers(table)
    count = len(column) // len(FIELDS)
    codes, hashes, rows = array("q"), array("i"), array("q")
    ends = (column[count * FIELDS.index(name) :] for name in ("start", "size", "body_end"))
    topic_ends = column[count * FIELDS.index("topic_end") :]
    starts, sizes, body_ends = ends
    for row in range(count):
        topic = str(view[body_ends[row] + 1 : topic_ends[row]], "utf-8", "replace")
        properties = bytes(view[topic_ends[row] + 2 : starts[row] + sizes[row]])
        tag, keys = labels(properties)
        codes.append(java_hash(tag.decode("utf-8", "replace")) if tag else 0)
        for key in keys:
            hashes.append(index_hash(f"{topic}#{key.decode('utf-8', 'replace')}"))
            rows.append(row)
    return _bytes(codes), _bytes(hashes), _bytes(rows)


def queue_units(
    table: Column, codes: Column, topic_of: Column | None = None
) -> tuple[bytearray, bytearray, bytearray, list[tuple[int, int, int]], int]:
    """The consume queue units of the records of a table, queue by queue.

    `topic_of` has the number of each record's topic; None means 0 for all. Returns the units (20
    bytes each), their codes and their offsets, all in the order of the groups; the groups, as
    (number of the topic, queue id, number of units) in the order in which they first occur; and how
    many records have no queue because its id is negative. Halves of transactions have no unit.
    """
    column = _numbers(table)
    count = len(column) // len(FIELDS)
    code_of = _numbers(codes)
    topics = None if topic_of is None else _numbers(topic_of)
    at = {name: count * number for number, name in enumerate(FIELDS)}
    groups: dict[tuple[int, int], list[int]] = {}
    refused = 0
    for row in range(count):
        queue_id = column[at["queue_id"] + row]
        refused += queue_id < 0
        if queue_id >= 0 and column[at["sys_flag"] + row] & _TRANSACTION in (0, _COMMIT):
            groups.setdefault((topics[row] if topics else 0, queue_id), []).append(row)
    rows = [row for own in groups.values() for row in own]
    units = bytearray().join(
        _UNIT.pack(column[at["position"] + row], column[at["size"] + row], code_of[row])
        for row in rows
    )
    unit_codes = _bytes(array("q", [code_of[row] for row in rows]))
    offsets = _bytes(array("q", [column[at["queue_offset"] + row] for row in rows]))
    return units, unit_codes, offsets, [(*key, len(own)) for key, own in groups.items()], refused


# -- one record -----------------------------------------------------------------------------------


def _parts(view: memoryview, at: int, size: int) -> Parts | None:
    """The parts of the record of this size at this place; None if there is none."""
    if at < 0 or size < 0 or at + size > len(view):
        return None
    try:
        parts = parts_of(view, at, at + size)
    except Corrupt:
        return None
    return parts if parts.size == size else None


def _draft_problem(view: memoryview, parts: Parts, properties: bytes, body_size_max: int) -> int:
    if parts.body_end - parts.body_at > body_size_max:
        return TOO_LARGE
    if parts.sys_flag & _TRANSACTION:
        return TRANSACTIONAL
    marked = properties[-CRC_PROPERTY_BYTES : len(CRC_MARK) - CRC_PROPERTY_BYTES] == CRC_MARK
    if not marked and len(properties) < CRC_ROOM_FROM:
        return NO_CRC
    if zlib.crc32(view[parts.body_at : parts.body_end]) & CRC_MASK != parts.crc:
        return DAMAGED
    return 0


def _holds(view: memoryview, at: int, parts: Parts) -> int:
    end = at + parts.size
    mark = end - CRC_PROPERTY_BYTES
    if mark >= parts.props_at:
        tail = bytes(view[mark:end])
        if tail[: len(CRC_MARK)] == CRC_MARK:
            whole = tail[len(CRC_MARK) :] == crc_value(zlib.crc32(view[at:mark]) & CRC_MASK)
            return WHOLE if whole else BAD
        if resembles_crc(tail):
            return BAD
    whole = zlib.crc32(view[parts.body_at : parts.body_end]) & CRC_MASK == parts.crc
    return BODY if whole else BAD


# -- numbers --------------------------------------------------------------------------------------


def _view(column: Column) -> memoryview:
    view = memoryview(cast("Buffer", column))
    return view.cast("B") if view.nbytes else memoryview(b"")


def _numbers(column: Column) -> memoryview:
    return _view(column).cast("q")


def _bytes(numbers: array[int]) -> bytearray:
    return bytearray(numbers.tobytes())


def _table(found: list[tuple[int, Parts]]) -> bytearray:
    columns = zip(*_rows(found), strict=True) if found else ()
    return bytearray().join([array("q", column).tobytes() for column in columns])


def _rows(found: list[tuple[int, Parts]]) -> Iterator[tuple[int, ...]]:
    for at, parts in found:
        yield at, *(getattr(parts, name) for name in FIELDS[1:])
