"""Is what lies there a whole record, and the one that a queue's unit promises?

Lives here: the checks that every record passes on its way to a reader and through recovery:
checksums, and its own word about position, topic, queue and offset. Once for few records, once
vectorised for many; both say the same.
May not live here: finding records (kourou.store.reads), the layout itself (kourou.protocol).

State: none.

RocketMQ 4.9 writes no checksum over the whole record, only over the body, so a record without one
may be sound, or may be one of ours whose last bytes were overwritten. It passes only if its
properties are well formed to the end: what a torn or rotten sector leaves is not.

The vectorised check reads headers and checksum properties as structured arrays laid over the mapped
bytes at every byte (stride 1), so that one `take` fetches all fields of all records. Records
without a checksum property or with IPv6 hosts are checked one by one.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kourou.errors import Corrupt
from kourou.model.limits import CRC_PROPERTY_BYTES, RECORD_FIXED_BYTES
from kourou.protocol.record import Blank, CheckedRecord, check_record
from kourou.protocol.record_batch import RecordColumns, verify_batch
from kourou.protocol.record_layout import (
    ANY_V6,
    BODY_LENGTH_AT,
    CRC_DIGITS,
    CRC_MARK,
    CRC_MASK,
    HEAD_BYTES,
    POSITION_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    parts_of,
)

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SCALAR_BELOW = 5
"""So few records are checked faster one by one: numpy's fixed costs are about 20 microseconds."""

_HEAD = np.dtype(
    {
        "names": ["queue_id", "queue_offset", "position", "flags", "body_length"],
        "formats": [">i4", ">i8", ">i8", ">i4", ">i4"],
        "offsets": [QUEUE_ID_AT, QUEUE_OFFSET_AT, POSITION_AT, SYS_FLAG_AT, BODY_LENGTH_AT],
        "itemsize": HEAD_BYTES,
    }
)
_TAIL = np.dtype([("mark", f"S{len(CRC_MARK)}"), ("digits", "u1", CRC_DIGITS), ("end", "u1")])
_TENS = 10 ** np.arange(CRC_DIGITS, dtype=np.int64)

assert _TAIL.itemsize == CRC_PROPERTY_BYTES


def check_stored(view: memoryview, at: int, end: int, position: int) -> CheckedRecord:
    """Check the record at `at`, which must end by `end`, as strictly as it can be checked.

    Raises Corrupt that names what is wrong; a filler is no record.
    """
    found = check_record(view, at, end, position)
    if isinstance(found, Blank):
        raise Corrupt(f"a filler lies at {position}")
    mark = at + found.size - CRC_PROPERTY_BYTES
    if view[mark : mark + len(CRC_MARK)] != CRC_MARK:
        parts = parts_of(view, at, end)
        properties = bytes(view[parts.props_at : at + found.size])
        if not properties_are_sound(properties):
            raise Corrupt(f"the properties of the record at {position} are damaged")
    return found


def properties_are_sound(properties: bytes) -> bool:
    """Pairs of a name and a value in UTF-8, to the last byte, and no zero byte among them."""
    if not properties:
        return True
    if b"\0" in properties:
        return False
    try:
        properties.decode()
    except UnicodeDecodeError:
        return False
    pairs = properties.removesuffix(b"\x02").split(b"\x02")
    return all(pair.find(b"\x01") > 0 for pair in pairs)


def sound(found: RecordColumns, positions: Longs) -> Flags:
    """Which of these stored records pass every check; `positions` is where they lie."""
    good = verify_batch(found, positions)
    ends = found.starts + found.sizes
    tails = _tails(found.blob.data, ends - CRC_PROPERTY_BYTES)
    for index in np.flatnonzero(good & (tails["mark"] != CRC_MARK)).tolist():
        good[index] = properties_are_sound(found.properties(index))
    return good


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the records must say of themselves. `topic` None: any queue's records are wanted."""

    topic: bytes | None
    queue_id: int
    offsets: Longs


def verify(view: memoryview, starts: Longs, sizes: Longs, base: int, wanted: Wanted) -> Flags:
    """Which records at `starts` in `view`, which begins at position `base`, are the wanted ones.

    Every record must lie inside the view.
    """
    if len(starts) < SCALAR_BELOW:
        chosen = np.arange(len(starts))
        return _one_by_one(view, starts, sizes, base, wanted, chosen)
    if int(sizes.min()) < RECORD_FIXED_BYTES:
        return _long_enough(view, starts, sizes, base, wanted)
    heads = np.ndarray((len(view) - HEAD_BYTES + 1,), _HEAD, view, strides=(1,))[starts]
    marks = starts + (sizes - CRC_PROPERTY_BYTES)
    tails = _tails(view, marks)
    plain: Flags = (tails["mark"] == CRC_MARK) & (tails["end"] == 2)
    plain &= heads["flags"] & ANY_V6 == 0
    # The checksum vouches for size and magic number: it lies where the size says, and it matches.
    good = _checksums_hold(view, starts, marks, tails)
    good &= heads["position"] == starts + base
    if wanted.topic is not None:
        good &= heads["queue_id"] == wanted.queue_id
        good &= heads["queue_offset"] == wanted.offsets
        good &= _has_topic(view, starts + heads["body_length"] + HEAD_BYTES, wanted.topic)
    if not plain.all():
        others = np.flatnonzero(~plain)
        good[others] = _one_by_one(view, starts, sizes, base, wanted, others)[others]
    return good


def _long_enough(view: memoryview, starts: Longs, sizes: Longs, base: int, wanted: Wanted) -> Flags:
    """The same where a unit claims a size that no record has: that one is not good."""
    good: Flags = sizes >= RECORD_FIXED_BYTES
    rest = np.flatnonzero(good)
    part = Wanted(wanted.topic, wanted.queue_id, wanted.offsets[rest])
    good[rest] = verify(view, starts[rest], sizes[rest], base, part)
    return good


def _tails(view: memoryview, marks: Longs) -> npt.NDArray[np.void]:
    places = len(view) - CRC_PROPERTY_BYTES + 1
    return np.ndarray((places,), _TAIL, view, strides=(1,))[marks]


def _has_topic(view: memoryview, at: Longs, topic: bytes) -> Flags:
    """Where the topic's length and name stand at `at`, which may be any number."""
    length = len(topic) + 1
    places = len(view) - length + 1
    if places <= 0:
        return np.zeros(len(at), np.bool_)
    names = np.ndarray((places,), f"S{length}", view, strides=(1,))
    wanted = len(topic).to_bytes(1, "big") + topic
    if int(at.min()) >= 0 and int(at.max()) < places:
        same: Flags = names[at] == wanted
        return same
    inside: Flags = (at >= 0) & (at < places)
    inside &= names[np.where(inside, at, 0)] == wanted
    return inside


def _checksums_hold(
    view: memoryview, starts: Longs, marks: Longs, tails: npt.NDArray[np.void]
) -> Flags:
    crc32 = zlib.crc32
    crcs = np.array(
        [
            crc32(view[start:mark])
            for start, mark in zip(starts.tolist(), marks.tolist(), strict=True)
        ],
        np.int64,
    )
    digits = (crcs & CRC_MASK)[:, None] // _TENS % 10 + ord("0")
    same: Flags = (tails["digits"] == digits).all(axis=1)
    return same


def _one_by_one(
    view: memoryview, starts: Longs, sizes: Longs, base: int, wanted: Wanted, chosen: Longs
) -> Flags:
    good = np.zeros(len(starts), np.bool_)
    for index in chosen.tolist():
        start = int(starts[index])
        offset = int(wanted.offsets[index])
        good[index] = is_wanted(view, start, int(sizes[index]), base, wanted, offset)
    return good


def is_wanted(
    view: memoryview, start: int, size: int, base: int, wanted: Wanted, offset: int
) -> bool:
    """The same for one record."""
    end = start + size
    try:
        found = check_stored(view, start, end, base + start)
        if found.size != size:
            return False
        if wanted.topic is None:
            return True
        if found.queue_id != wanted.queue_id or found.queue_offset != offset:
            return False
        parts = parts_of(view, start, end)
    except Corrupt:
        return False
    return view[parts.topic_at : parts.topic_end] == wanted.topic
