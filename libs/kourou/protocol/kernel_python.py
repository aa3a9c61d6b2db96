"""The record kernel in Python: the specification of each function, and the fallback without a
compiler.

Numbers are passed as buffers of native 64-bit integers. A *table* has `FIELDS` columns, one after
the other, each with one number per record; `*_at` and `*_end` are indexes into the bytes, times are
ms.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from operator import ne
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from kourou.access.signature import ACCESS_KEY, SignedFields, header_fields
from kourou.errors import Corrupt
from kourou.model.limits import (
    CRC_PROPERTY_BYTES,
    PROPERTIES_SIZE_BYTES_MAX,
    RECORD_FIXED_BYTES,
    SEGMENT_TAIL_BYTES,
    TOPIC_LENGTH_MAX,
)
from kourou.model.message import Property, SysFlag
from kourou.protocol.record.hashes import index_hash, java_hash
from kourou.protocol.record.layout import (
    BODY_CRC_AT,
    BORN_V6,
    CRC_MARK,
    CRC_MASK,
    CRC_PLACEHOLDER,
    CRC_VALUE_BYTES,
    HOST_V6_BYTES,
    MAGIC,
    POSITION_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    STORE_V6,
    SYS_FLAG_AT,
    V6_EXTRA_BYTES,
    Buffer,
    Parts,
    batch_item,
    crc_value,
    encode_head,
    parts_of,
    verify_parts,
    widen_host,
)
from kourou.protocol.record.properties import (
    Values,
    decode_properties,
    encode_properties,
    find_properties,
    labels,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VERSION = 10

Column: TypeAlias = "Buffer | array[int] | npt.NDArray[np.integer] | npt.NDArray[np.bool_]"
"""Bytes, or an array of bytes or native integers, contiguous."""


class UnitGroup(NamedTuple):
    """`number` units of one queue; `topic` is the number of its topic.

    `first_offset` is -1 if the offsets are not consecutive. `begins` and `ends` are log positions:
    the start of the first record and the end of the last one.
    """

    topic: int
    queue_id: int
    number: int
    first_offset: int
    begins: int
    ends: int


class ChosenUnits(NamedTuple):
    """The units that a read takes.

    `table` has the columns index, position and size, each with room for all units; the first
    `number` of each are the chosen units'. `fillers` are the indexes of units without a
    record, `end` is the number of units examined. `low` and `high` bound the records in the log,
    `total` is the sum of their sizes; if they are `adjacent`, each begins where the one before
    ends.
    """

    number: int
    table: bytearray
    fillers: list[int]
    end: int
    low: int
    high: int
    total: int
    adjacent: bool


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
"""Problems of a draft; 0 is none."""

TOO_LONG, NO_SPACE, NARROW = 6, 7, 8
"""Why a draft cannot be appended: longer than a segment; no room in the log; no room in it for the
broker's IPv6 address.
"""

OTHER_QUEUE, OTHER_TOPIC = 9, 10
"""The property of its queue (target) that a draft does not have."""

UNTILED = 16
"""The sizes of drafts do not add up to their bytes."""

TOO_MANY, LONG_PROPERTIES, TOO_MANY_BYTES = 13, 14, 15
"""Problems of a batch, in addition to CUT and LENGTHS of a message: there are too many; its
properties are too long; the drafts have too many bytes.
"""

FILLER_SIZE = 0x7FFF_FFFF
"""The size of a unit that reserves an offset and refers to no record; its other fields are 0."""

EXT_CODES_BELOW = -(1 << 31)
"""Codes below are addresses in RocketMQ's consumequeue_ext: the unit has no tag hash."""

BAD, WHOLE, BODY = 0, 1, 2
"""Results of `verify`: the record is bad; it matches its checksum; only its body has a checksum,
which matches.
"""

CRC_ROOM_FROM = PROPERTIES_SIZE_BYTES_MAX - CRC_PROPERTY_BYTES
"""A draft whose properties are at least this long may have had no room for the checksum."""

_TRANSACTION = int(SysFlag.TRANSACTION_MASK)
_COMMIT = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
_ENTRY = struct.Struct(">iqii")
_SECONDS_MAX = 0x7FFF_FFFF
_LONG_MAX = 2**63 - 1
_UNIT = struct.Struct(">qiq")
_DELAY = Property.DELAY.encode() + b"\x01"
_TRAN_MSG = Property.TRAN_MSG.encode() + b"\x01"


def read(records: Column, starts: Column, sizes: Column) -> tuple[bytearray, int]:
    """The table of the records at these places, and -1; or the index of the first invalid one.

    Only the structure is checked. The places may be in any order.
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
    """The table of the adjacent records from byte 0, and the index of the first byte after them."""
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
    """The table of adjacent drafts of these sizes; which of them may move; 0 and 0.

    In place of the zeros: the problem and the index of the first bad draft; then the other results
    are meaningless. A draft may move if it may have to be stored in another topic first, because it
    is delayed or part of a transaction.
    """
    view = _view(records)
    given = _numbers(sizes).tolist()
    if min(given, default=RECORD_FIXED_BYTES) < RECORD_FIXED_BYTES or sum(given) != len(view):
        return bytearray(), bytearray(), UNTILED, 0
    found: list[tuple[int, Parts]] = []
    moves = bytearray()
    at = 0
    for index, size in enumerate(given):
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


def check_targets(
    records: Column,
    table: Column,
    topics: list[bytes],
    queue_ids: Column,
    target_of: Column | None = None,
) -> int:
    """Check that each record of a table has the topic and the queue ID of its queue (target).

    Returns 0, OTHER_QUEUE or OTHER_TOPIC. `target_of` has the index of each record's target; None
    means 0 for all.
    """
    view = _view(records)
    column, queues = _numbers(table), _numbers(queue_ids)
    count = len(column) // len(FIELDS)
    targets = [0] * count if target_of is None else _numbers(target_of).tolist()
    if not all(0 <= target < len(topics) for target in targets):
        raise ValueError("a record has none of the queues")
    at = count * FIELDS.index("queue_id")
    if any(column[at + row] != queues[target] for row, target in enumerate(targets)):
        return OTHER_QUEUE
    topic_of = _topics(view, column, count)
    return OTHER_TOPIC if any(map(ne, topic_of, map(topics.__getitem__, targets))) else 0


def topics(records: Column, table: Column) -> tuple[list[bytes], bytearray | None]:
    """The distinct topics of a table's records, in order of first occurrence, and the index of each
    record's topic; None if there is only one topic.
    """
    column = _numbers(table)
    count = len(column) // len(FIELDS)
    numbers: dict[bytes, int] = {}
    topic_of = array("q")
    for topic in _topics(_view(records), column, count):
        topic_of.append(numbers.setdefault(topic, len(numbers)))
    return list(numbers), _bytes(topic_of) if len(numbers) > 1 else None


def draft(
    topic: bytes,
    queue_id: int,
    body: Buffer,
    properties: Buffer,
    flag: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    store_v6: bool,
    reconsume_times: int,
    prepared: int,
    with_crc: bool,
) -> bytes | None:
    """A record without its position; None if its properties are too long.

    The checksum property is appended if the properties leave room for it; an existing one at their
    end is replaced. The host bits of `sys_flag` are set from the hosts. Raises OverflowError for a
    number that does not fit.
    """
    _check_ends(topic, born_host)
    text = bytes(properties)
    if with_crc:
        if text[-CRC_PROPERTY_BYTES:-CRC_VALUE_BYTES] == CRC_MARK:
            text = text[:-CRC_PROPERTY_BYTES]
        marked = text + (b"\x02" if text and text[-1] != 2 else b"") + CRC_PLACEHOLDER
        text = marked if len(marked) <= PROPERTIES_SIZE_BYTES_MAX else text
    if len(text) > PROPERTIES_SIZE_BYTES_MAX:
        return None
    sys_flag &= ~(BORN_V6 | STORE_V6)
    size = RECORD_FIXED_BYTES + len(body) + len(topic) + len(text)
    store_host = bytes(8)
    if store_v6:
        sys_flag |= STORE_V6
        store_host = bytes(HOST_V6_BYTES)
        size += V6_EXTRA_BYTES
    if len(born_host) == HOST_V6_BYTES:
        sys_flag |= BORN_V6
        size += V6_EXTRA_BYTES
    first = (size, MAGIC, zlib.crc32(body) & CRC_MASK, queue_id, flag, 0, 0, sys_flag, born_ms)
    try:
        head = encode_head(first, born_host, store_host, (reconsume_times, prepared, len(body)))
    except struct.error as error:
        raise OverflowError(str(error)) from error
    length = len(text).to_bytes(2, "big")
    return b"".join((head, body, len(topic).to_bytes(1, "big"), topic, length, text))


def _check_ends(topic: bytes, born_host: bytes) -> None:
    if not 0 < len(topic) <= TOPIC_LENGTH_MAX or len(born_host) not in (8, HOST_V6_BYTES):
        raise ValueError("a topic has 1 to 127 bytes, a host 8 or 20")


def drafts(
    topic: bytes,
    queue_id: int,
    bodies: list[bytes],
    properties: list[bytes],
    flags: list[int],
    sys_flags: list[int],
    born_ms: int,
    born_host: bytes,
    store_v6: bool,
) -> tuple[bytes, list[int]] | None:
    """The adjacent drafts of several messages to one queue, with checksums, and their sizes.

    None if the properties of one are too long. Raises OverflowError like `draft`, and ValueError
    if the lists differ in length.
    """
    _check_ends(topic, born_host)
    if not len(bodies) == len(properties) == len(flags) == len(sys_flags):
        raise ValueError("each body needs its properties and flags")
    made = [
        draft(topic, queue_id, *each, born_ms, born_host, store_v6, 0, 0, True)
        for each in zip(bodies, properties, flags, sys_flags, strict=True)
    ]
    whole = [one for one in made if one is not None]
    if len(whole) < len(made):
        return None
    return b"".join(whole), list(map(len, whole))


def batch(
    encoded: Buffer,
    shared: bytes,
    topic: bytes,
    queue_id: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    reconsume_times: int,
    count_max: int,
    bytes_max: int,
) -> tuple[bytearray, bytearray, bytearray, int, int]:
    """The adjacent drafts of the messages of a batch body (kourou.protocol.record.layout);
    their sizes; which of them may move; 0 and their number.

    `shared` are properties that are appended to those of each message. In place of the 0 and the
    number: the problem, and the index of the message.
    """
    data = bytes(encoded)
    drafts: list[bytes] = []
    moves = bytearray()
    at = total = 0
    problem = 0
    while at < len(data) and not problem:
        problem, body_at, own_at, end = batch_item(data, at)
        if problem:
            break
        own = data[own_at:end]
        joined = own + (b"\x02" if own and own[-1] != 2 else b"") + shared
        if len(drafts) == count_max:
            problem = TOO_MANY
        elif len(joined) > PROPERTIES_SIZE_BYTES_MAX:
            problem = LONG_PROPERTIES
        else:
            flag = int.from_bytes(data[at + 12 : at + 16], "big", signed=True)
            body = data[body_at : own_at - 2]
            made = draft(
                topic, queue_id, body, joined, flag, sys_flag, born_ms, born_host, False,
                reconsume_times, 0, True,
            )  # fmt: skip
            assert made is not None, "its properties were measured"
            total += len(made)
            if total > bytes_max:
                problem = TOO_MANY_BYTES
            else:
                drafts.append(made)
                moves.append(_DELAY in joined or _TRAN_MSG in joined)
        at = end
    if problem:
        return bytearray(), bytearray(), bytearray(), problem, len(drafts)
    sizes = _bytes(array("q", map(len, drafts)))
    return bytearray().join(drafts), sizes, moves, 0, len(drafts)


def edit(properties: Buffer, changes: tuple[tuple[bytes, bytes | None], ...]) -> bytes:
    """Encoded properties with these changes: set, or removed if the value is None.

    An existing property keeps its place; new ones are appended. Pieces that are not a property are
    dropped, and so is the checksum. Raises MessageIllegal for a value that cannot be stored.
    """
    found = decode_properties(bytes(properties))
    for name, value in changes:
        if value is None:
            found.pop(name.decode(), None)
        else:
            found[name.decode()] = value.decode()
    return encode_properties(found)


def move(
    record: Buffer,
    topic: bytes,
    queue_id: int,
    changes: tuple[tuple[bytes, bytes | None], ...],
    cleared: int,
    added: int,
    reconsume_times: int,
    prepared: int,
) -> bytes | None:
    """The record, or draft, as a draft for another queue; None if its properties become too long.

    Its properties are edited (see `edit`). The flags in `cleared` are removed and those in `added`
    are set; neither may contain the hosts' bits. `reconsume_times` replaces its own unless it is
    negative. Raises ValueError if it is not a record, OverflowError for a number that does not fit.
    """
    view = _view(record)
    parts = _parts(view, 0, len(view))
    if parts is None:
        raise ValueError("these bytes are no record")
    made = draft(
        topic,
        queue_id,
        view[parts.body_at : parts.body_end],
        edit(view[parts.props_at :], changes),
        parts.flag,
        (parts.sys_flag & ~cleared) | added,
        parts.born_timestamp,
        parts.born_host,
        bool(parts.sys_flag & STORE_V6),
        parts.reconsume_times if reconsume_times < 0 else reconsume_times,
        prepared,
        with_crc=True,
    )
    if made is None:
        return None
    crc = parts.crc.to_bytes(4, "big")  # unchanged: a damaged body must not become a valid one
    return made[:BODY_CRC_AT] + crc + made[BODY_CRC_AT + 4 :]


def values(records: Sequence[Buffer], names: tuple[bytes, ...]) -> list[Values]:
    """For each record, the value of its last property of each name; None if it has none.

    Raises ValueError if one of them is not a record.
    """
    found = []
    for record in records:
        view = _view(record)
        parts = _parts(view, 0, len(view))
        if parts is None:
            raise ValueError("these bytes are no record")
        found.append(find_properties(bytes(view[parts.props_at :]), names))
    return found


def value_groups(
    records: Column, starts: Column, sizes: Column, names: tuple[bytes, ...], base: int = 0
) -> tuple[list[Values], bytearray]:
    """The different `values` of the records at `starts`, and for each record the number of its own.

    `starts` count from `base`. Raises ValueError if a record is not there.
    """
    view = _view(records)
    groups: dict[Values, int] = {}
    group_of = array("q")
    for start, size in zip(_numbers(starts), _numbers(sizes), strict=True):
        parts = _parts(view, start - base, size)
        if parts is None:
            raise ValueError("these bytes are no record")
        found = find_properties(bytes(view[parts.props_at : start - base + size]), names)
        group_of.append(groups.setdefault(found, len(groups)))
    return list(groups), _bytes(group_of)


def gather(records: Column, starts: Column, sizes: Column, base: int = 0) -> bytes:
    """The bytes at these places, one after the other. `starts` count from `base`.

    Raises ValueError if a place is not within the bytes.
    """
    view = _view(records)
    parts: list[memoryview] = []
    for start, size in zip(_numbers(starts), _numbers(sizes), strict=True):
        at = start - base
        if at < 0 or size < 0 or at + size > len(view):
            raise ValueError("a record is not within the bytes")
        parts.append(view[at : at + size])
    return b"".join(parts)


def choose(
    units: Column,
    below: int,
    log_end: int,
    codes: Column | None,
    messages_max: int,
    bytes_max: int,
) -> ChosenUnits:
    """Which of these units of a queue a read takes, from the first one on.

    It ends before a record that is not wholly below position `below`, unless the unit is wrong and
    points beyond `log_end`, and before what exceeds a limit; the first record exceeds none. `codes`
    are sorted: units with other tag codes are passed over.
    """
    raw = _view(units)
    wanted = None if codes is None else frozenset(_numbers(codes))
    count = len(raw) // _UNIT.size
    rows: list[tuple[int, int, int]] = []
    fillers: list[int] = []
    total, end = 0, count
    for index, (position, size, code) in enumerate(_UNIT.iter_unpack(raw)):
        if size == FILLER_SIZE:
            fillers.append(index)
            continue
        if below < _wrapped(position + size) <= log_end:
            end = index
            break
        if wanted is not None and code >= EXT_CODES_BELOW and code not in wanted:
            continue
        if rows and (len(rows) == messages_max or total + size > bytes_max):
            end = index
            break
        rows.append((index, position, size))
        total += size
    columns = [array("q", column) for column in zip(*rows, strict=True)] if rows else []
    table = b"".join(column.tobytes() + bytes(8 * (count - len(rows))) for column in columns)
    ends = [_wrapped(position + size) for _, position, size in rows]
    starts = [position for _, position, _ in rows]
    return ChosenUnits(
        len(rows),
        bytearray(table or bytes(24 * count)),
        fillers,
        end,
        min(starts, default=0),
        max(ends, default=0),
        total,
        starts[1:] == ends[:-1],
    )


def _wrapped(number: int) -> int:
    """This number as a signed one of 64 bits: a wrong unit may exceed them."""
    return (number + 2**63) % 2**64 - 2**63


def verify(
    records: Column,
    starts: Column,
    sizes: Column,
    positions: Column | None = None,
    topic: Column | None = None,
    queue_id: int = 0,
    offsets: Column | None = None,
    base: int = 0,
    first_offset: int = 0,
) -> bytearray:
    """For each of these places, whether a whole record is there: BAD, WHOLE or BODY.

    With `positions`, each record must have that log position; with a `topic`, it must be of that
    topic and queue, and have its entry of `offsets`. `starts` count from `base`, `offsets` from
    `first_offset`.
    """
    view = _view(records)
    good = bytearray()
    places = None if positions is None else _numbers(positions)
    numbers = None if offsets is None else _numbers(offsets)
    for index, (start, size) in enumerate(zip(_numbers(starts), _numbers(sizes), strict=True)):
        at = start - base
        parts = _parts(view, at, size)
        good.append(BAD)
        if parts is None or (places is not None and parts.position != places[index]):
            continue
        if topic is not None:
            there = None if numbers is None else _wrapped(numbers[index] + first_offset)
            if (parts.queue_id, parts.queue_offset) != (queue_id, there):
                continue
            if view[parts.topic_at : parts.topic_end] != topic:
                continue
        good[-1] = _holds(view, at, parts)
    return good


def append(
    records: Column,
    sizes: Column,
    target_of: Column | None,
    next_offsets: Column,
    end: int,
    limit: int,
    segment_size: int,
    store_ms: int,
    host: bytes,
) -> tuple[bytearray, list[tuple[int, int, int]], list[tuple[int, int]], int, int, int]:
    """Assign offsets and positions to adjacent drafts in `records`, and stamp them, after log
    position `end`.

    `target_of` has the index of each draft's queue; None means 0 for all. `next_offsets` has the
    next offset of each queue and is advanced. A record is entirely inside a segment, followed by at
    least SEGMENT_TAIL bytes. Returns the table of the stamped records; the contiguous runs, as
    (first record, number of records, position); the fillers that close segments, as (position,
    bytes); the log's end; 0 and 0. In place of the zeros: the problem and the index of the first
    bad draft; then nothing has changed. NO_SPACE: the log would end above `limit`. An IPv4 host is
    widened for a draft with room for IPv6.
    """
    refused: tuple[bytearray, list[tuple[int, int, int]], list[tuple[int, int]], int]
    refused = (bytearray(), [], [], end)
    with _view(records) as view:
        length_of, offset_of = _numbers(sizes), _numbers(next_offsets)
        if any(offset > _LONG_MAX - len(length_of) for offset in offset_of):
            raise ValueError("a queue has no offsets left")
        targets = None if target_of is None else _numbers(target_of)
        found: list[tuple[int, Parts]] = []
        at = 0
        for index, size in enumerate(length_of):
            parts = _parts(view, at, size)
            if parts is None:
                return *refused, STRUCTURE, index
            if len(host) == HOST_V6_BYTES and not parts.sys_flag & STORE_V6:
                return *refused, NARROW, index
            if targets is not None and not 0 <= targets[index] < len(offset_of):
                raise ValueError("a record has none of the queues")
            found.append((at, parts))
            at += size
        if at != len(view):
            return *refused, STRUCTURE, len(found)
        places, index = _places(length_of, end, segment_size)
        if index >= 0:
            return *refused, TOO_LONG, index
        if (places[-1] + length_of[-1] if places else end) > limit:
            return *refused, NO_SPACE, 0
        runs: list[tuple[int, int, int]] = []
        blanks: list[tuple[int, int]] = []
        stamped: list[tuple[int, Parts]] = []
        for index, (at, parts) in enumerate(found):
            target = 0 if targets is None else targets[index]
            offset, position = offset_of[target], places[index]
            offset_of[target] += 1
            view[at + QUEUE_OFFSET_AT : at + POSITION_AT] = offset.to_bytes(8, "big", signed=True)
            view[at + POSITION_AT : at + SYS_FLAG_AT] = position.to_bytes(8, "big", signed=True)
            _stamp_end(view, at, parts, store_ms, host)
            now = parts._replace(queue_offset=offset, position=position, store_timestamp=store_ms)
            stamped.append((at, now))
            if position != end:
                blanks.append((end, position - end))
            if position != end or not runs:
                runs.append((index, 0, position))
            first, count, begin = runs[-1]
            runs[-1] = first, count + 1, begin
            end = position + parts.size
    return _table(stamped), runs, blanks, end, 0, 0


def _places(sizes: Sequence[int], end: int, segment_size: int) -> tuple[list[int], int]:
    """Positions for records of these sizes after `end`, and -1; or the index of the first one that
    is too long for a segment.
    """
    places: list[int] = []
    for index, size in enumerate(sizes):
        if size > segment_size - SEGMENT_TAIL_BYTES:
            return places, index
        left = segment_size - end % segment_size
        if size + SEGMENT_TAIL_BYTES > left:
            end += left
        places.append(end)
        end += size
    return places, -1


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


def project(records: Column, table: Column) -> tuple[bytearray, bytearray, bytearray, bytearray]:
    """The data of a table's records for consume queues and the key index.

    Returns the hash of each record's tags (0 for none), and for each key of each record the hash of
    `topic#key` (32 bits, not negative), the record's position and its store time in ms. A record's
    unique key comes first, then its business keys in the producer's order, including duplicates.
    The key index omits transactions that were rolled back.
    """
    view = _view(records)
    column = _numbers(table)
    count = len(column) // len(FIELDS)
    at = {name: count * number for number, name in enumerate(FIELDS)}
    codes, hashes, positions, store_ms = array("q"), array("i"), array("q"), array("q")
    for row in range(count):
        topic_end = column[at["topic_end"] + row]
        end = column[at["start"] + row] + column[at["size"] + row]
        topic = str(view[column[at["body_end"] + row] + 1 : topic_end], "utf-8", "replace")
        tag, keys = labels(bytes(view[topic_end + 2 : end]))
        codes.append(java_hash(tag.decode("utf-8", "replace")) if tag else 0)
        if column[at["sys_flag"] + row] & _TRANSACTION == _ROLLBACK:
            continue
        for key in keys:
            hashes.append(index_hash(f"{topic}#{key.decode('utf-8', 'replace')}"))
            positions.append(column[at["position"] + row])
            store_ms.append(column[at["store_timestamp"] + row])
    return _bytes(codes), _bytes(hashes), _bytes(positions), _bytes(store_ms)


def index_entries(
    hashes: Column, positions: Column, store_ms: Column, slots: Column, number: int, begin_ms: int
) -> tuple[bytes, int]:
    """The entries of an index file for some keys; the first entry gets this number.

    `slots` has the number of the newest entry of each slot (native 32-bit numbers), and is not
    changed. `begin_ms` is the file's begin time: for an empty file the end time of the previous
    file, 0 if there is none. Returns the entries (20 bytes each) and how many are the first of
    their slot. Raises ValueError for a negative hash.
    """
    slot_at = _view(slots).cast("i")
    heads: dict[int, int] = {}
    entries = bytearray()
    used = 0
    columns = (_view(hashes).cast("i"), _numbers(positions), _numbers(store_ms))
    for key_hash, position, at_ms in zip(*columns, strict=True):
        if key_hash < 0:
            raise ValueError("a hash is negative")
        place = key_hash % len(slot_at)
        previous = heads.get(place) or slot_at[place]
        seconds = 0 if begin_ms <= 0 else min(max(at_ms - begin_ms, 0) // 1000, _SECONDS_MAX)
        entries += _ENTRY.pack(key_hash, position, seconds, previous)
        if number == 1:
            begin_ms = at_ms
        used += previous == 0
        heads[place] = number
        number += 1
    return bytes(entries), used


def link_slots(hashes: Column, number: int, slots: Column, pages: Column, page_slots: int) -> None:
    """Point the slots of these keys to their entries, the first of which has this number.

    `pages` has a byte for each `page_slots` slots, set to 1 if a slot was changed.
    """
    slot_at, page_at = _view(slots).cast("i"), _view(pages)
    for at, key_hash in enumerate(_view(hashes).cast("i")):
        if key_hash < 0:
            raise ValueError("a hash is negative")
        place = key_hash % len(slot_at)
        slot_at[place] = number + at
        page_at[place // page_slots] = 1


def queue_units(
    table: Column, codes: Column, topic_of: Column | None = None
) -> tuple[bytearray, bytearray, list[UnitGroup], int]:
    """The consume queue units of the records of a table, grouped by queue.

    `topic_of` has the index of each record's topic; None means 0 for all. Returns the units (20
    bytes each) and their offsets, both in the order of the groups; the groups, in order of first
    occurrence; and the number of records with a negative queue ID, which have no queue. Halves of
    transactions have no unit.
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
    offsets = _bytes(array("q", [column[at["queue_offset"] + row] for row in rows]))
    given: list[UnitGroup] = []
    for (topic, queue_id), own in groups.items():
        offset = column[at["queue_offset"] + own[0]]
        is_run = all(column[at["queue_offset"] + row] == offset + n for n, row in enumerate(own))
        begins = column[at["position"] + own[0]]
        ends = column[at["position"] + own[-1]] + column[at["size"] + own[-1]]
        first_offset = offset if is_run else -1
        given.append(UnitGroup(topic, queue_id, len(own), first_offset, begins, ends))
    return units, offsets, given, refused


# -- signed headers -------------------------------------------------------------------------------


def signed_parts(header: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The access key of a request's JSON header, its signature ("" without one), and the text that
    is signed before the body, all as UTF-8; None if its fields have no access key.

    They are those of `SignedFields`. Raises MsgspecError or ValueError unless all fields are texts.
    """
    fields = header_fields(header)
    if ACCESS_KEY not in fields:
        return None
    signed = SignedFields.of(fields)
    return signed.access_key.encode("utf-8", "replace"), signed.signature, signed.text


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


def _topics(view: memoryview, column: memoryview, count: int) -> Iterator[bytes]:
    """The topic of each record of a table."""
    ends = column[count * FIELDS.index("body_end") :]
    topic_ends = column[count * FIELDS.index("topic_end") :]
    for row in range(count):
        yield bytes(view[ends[row] + 1 : topic_ends[row]])


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
    try:
        return WHOLE if verify_parts(view, at, parts) else BODY
    except Corrupt:
        return BAD


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
