"""Many records at once: the same layout as kourou.protocol.record, column by column, in numpy.

Lives here: walking, checking, stamping and verifying batches, and what the projections need of
them.
May not live here: a rule about one record that kourou.protocol.record does not have too.

A batch is a buffer with records back to back (or at given starts). `RecordColumns` holds one array
a field. Nothing loops over records on the good path except the checksums, which zlib computes, and
the chain of sizes in `scan`. For a handful of records the scalar code is faster and gives the same.

Invariants:  whatever the bytes are, only MessageIllegal (drafts) or Corrupt (stored) is raised
             no offset that was read from the bytes is used before it was checked
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kourou.errors import Corrupt, MessageIllegal
from kourou.model.limits import (
    BODY_SIZE_BYTES_MAX,
    CRC_PROPERTY_BYTES,
    RECORD_FIXED_BYTES,
    TOPIC_LENGTH_MAX,
)
from kourou.model.message import StoredMessage
from kourou.model.sysflag import SysFlag
from kourou.protocol.hashing import tags_code
from kourou.protocol.properties import find_property
from kourou.protocol.record import (
    BLANK_MAGIC,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    CRC_MARK,
    HOST_V4_BYTES,
    MAGIC,
    MASK,
    POSITION_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    Buffer,
    check_record,
    decode_record,
    stamp,
)

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

SCALAR_BELOW = 6
"""Batches smaller than this are handled record by record: numpy's fixed costs are higher."""

_V6 = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_SIZE_MAGIC = struct.Struct(">II")
_I4 = np.arange(4, dtype=np.int64)
_I8 = np.arange(8, dtype=np.int64)
_I20 = np.arange(CRC_PROPERTY_BYTES, dtype=np.int64)
_MARK = np.frombuffer(CRC_MARK, dtype=np.uint8)
_TENS = 10 ** np.arange(10, dtype=np.int64)


@dataclass(slots=True)
class RecordColumns:
    """Fields of many records. `*_at` and `starts` are indexes into `blob`; times are ms."""

    blob: Bytes
    starts: Longs
    sizes: Longs
    queue_ids: Longs
    queue_offsets: Longs
    positions: Longs
    sys_flags: Longs
    store_timestamps: Longs
    body_at: Longs
    body_len: Longs
    topic_at: Longs
    topic_len: Longs
    props_at: Longs
    props_len: Longs

    def __len__(self) -> int:
        return len(self.sizes)

    def record(self, index: int) -> memoryview:
        """The bytes of one record."""
        start = int(self.starts[index])
        return memoryview(self.blob)[start : start + int(self.sizes[index])]

    def topic(self, index: int) -> bytes:
        """The topic of one record."""
        at = int(self.topic_at[index])
        return self.blob[at : at + int(self.topic_len[index])].tobytes()

    def properties(self, index: int) -> bytes:
        """The encoded properties of one record."""
        at = int(self.props_at[index])
        return self.blob[at : at + int(self.props_len[index])].tobytes()


def _int32s(blob: Bytes, at: Longs) -> Longs:
    return blob[at[:, None] + _I4].view(">i4")[:, 0].astype(np.int64)


def _int64s(blob: Bytes, at: Longs) -> Longs:
    return blob[at[:, None] + _I8].view(">i8")[:, 0].astype(np.int64)


def _array(buf: Buffer | Bytes) -> Bytes:
    return buf if isinstance(buf, np.ndarray) else np.frombuffer(buf, dtype=np.uint8)


def _layout(blob: Bytes, starts: Longs, sizes: Longs) -> tuple[RecordColumns | None, int, str]:
    """Columns of records that lie inside the blob, or (None, index, what is wrong) for the first bad one."""
    short = sizes < RECORD_FIXED_BYTES
    if short.any():
        return None, int(np.argmax(short)), "it is too short to be a record"
    told = _int32s(blob, starts)
    wrong = told != sizes
    if wrong.any():
        return None, int(np.argmax(wrong)), "its size field disagrees with its size"
    wrong = _int32s(blob, starts + 4) != MAGIC - 2**32
    if wrong.any():
        return None, int(np.argmax(wrong)), "its magic number is wrong"
    sys_flags = _int32s(blob, starts + SYS_FLAG_AT)
    if (sys_flags & _V6).any():
        born = np.where(sys_flags & int(SysFlag.BORN_HOST_V6), 20, HOST_V4_BYTES)
        store = np.where(sys_flags & int(SysFlag.STORE_HOST_V6), 20, HOST_V4_BYTES)
        fixed = RECORD_FIXED_BYTES - 2 * HOST_V4_BYTES + born + store
        short = sizes < fixed
        if short.any():
            return None, int(np.argmax(short)), "it is too short for its IPv6 hosts"
        stored_at = starts + BORN_HOST_AT + born
        body_at = stored_at + 8 + store + 16
    else:
        fixed = np.full(len(sizes), RECORD_FIXED_BYTES, dtype=np.int64)
        stored_at = starts + BORN_HOST_AT + HOST_V4_BYTES
        body_at = starts + RECORD_FIXED_BYTES - 3
    body_len = _int32s(blob, body_at - 4)
    wrong = (body_len < 0) | (body_len > sizes - fixed)
    if wrong.any():
        return None, int(np.argmax(wrong)), "its body length does not fit"
    topic_at = body_at + body_len + 1
    topic_len = blob[topic_at - 1].astype(np.int64)
    wrong = (topic_len > TOPIC_LENGTH_MAX) | (body_len + topic_len > sizes - fixed)
    if wrong.any():
        return None, int(np.argmax(wrong)), "its topic length does not fit"
    props_at = topic_at + topic_len + 2
    props_len = (blob[props_at - 2].astype(np.int64) << 8) | blob[props_at - 1]
    wrong = props_at + props_len != starts + sizes
    if wrong.any():
        return None, int(np.argmax(wrong)), "the lengths of its parts do not add up"
    found = RecordColumns(
        blob,
        starts,
        sizes,
        _int32s(blob, starts + QUEUE_ID_AT),
        _int64s(blob, starts + QUEUE_OFFSET_AT),
        _int64s(blob, starts + POSITION_AT),
        sys_flags,
        _int64s(blob, stored_at),
        body_at,
        body_len,
        topic_at,
        topic_len,
        props_at,
        props_len,
    )
    return found, -1, ""


def columns(buf: Buffer | Bytes, starts: Longs, sizes: Longs) -> RecordColumns:
    """Columns of stored records at known places; raises Corrupt naming the first bad one.

    Only the structure is checked; `verify_batch` checks checksums and positions.
    """
    blob = _array(buf)
    if len(sizes) and (int(starts.min()) < 0 or int((starts + sizes).max()) > len(blob)):
        raise Corrupt("a record lies outside the bytes given")
    found, index, problem = _layout(blob, starts, sizes)
    if found is None:
        raise Corrupt(f"record {index} of {len(sizes)} at byte {int(starts[index])}: {problem}")
    return found


def scan(buf: Buffer, starts: Sequence[int] | None = None) -> RecordColumns:
    """Columns of the records that lie back to back from byte 0, up to a filler, zeros or the end.

    Raises Corrupt for a damaged structure in between.
    """
    if starts is not None:
        at = np.asarray(starts, dtype=np.int64)
        sizes = np.asarray([int.from_bytes(buf[i : i + 4], "big") for i in starts], np.int64)
        return columns(buf, at, sizes)
    found: list[int] = []
    lengths: list[int] = []
    end = len(buf)
    unpack = _SIZE_MAGIC.unpack_from
    place = 0
    while place + 8 <= end:
        size, magic = unpack(buf, place)
        if magic == BLANK_MAGIC or size == 0:
            break
        if magic != MAGIC or size < RECORD_FIXED_BYTES or place + size > end:
            raise Corrupt(f"no record begins at byte {place}")
        found.append(place)
        lengths.append(size)
        place += size
    return columns(buf, np.asarray(found, np.int64), np.asarray(lengths, np.int64))


# -- what a client sends --------------------------------------------------------------------------


def check_drafts(
    buf: Buffer, sizes: Longs, body_size_max: int = BODY_SIZE_BYTES_MAX
) -> RecordColumns:
    """The broker's test of a client's batch: drafts of these sizes, back to back, and nothing else.

    Every length field must agree, no body may exceed `body_size_max`, no draft may claim to be half
    of a transaction, and the checksum property must have its place. Raises MessageIllegal.
    """
    blob = _array(buf)
    if len(sizes) == 0 or int(sizes.min()) < RECORD_FIXED_BYTES or int(sizes.sum()) != len(blob):
        raise MessageIllegal("the sizes do not tile the records; nothing was stored")
    starts = np.cumsum(sizes) - sizes
    found, index, problem = _layout(blob, starts, sizes)
    if found is None:
        raise MessageIllegal(f"message {index} of {len(sizes)}: {problem}; nothing was stored")
    wrong = found.body_len > body_size_max
    if wrong.any():
        index = int(np.argmax(wrong))
        raise MessageIllegal(
            f"message {index} of {len(sizes)}: its body has {int(found.body_len[index])} bytes; "
            f"maxMessageSize is {body_size_max}; nothing was stored"
        )
    if (found.sys_flags & int(SysFlag.TRANSACTION_MASK)).any():
        raise MessageIllegal("transactional messages are sent one by one; nothing was stored")
    wrong = found.props_len < CRC_PROPERTY_BYTES
    if not wrong.any():
        tails = (starts + sizes - CRC_PROPERTY_BYTES)[:, None] + _I20[: len(CRC_MARK)]
        wrong = (blob[tails] != _MARK).any(axis=1)
    if wrong.any():
        _check_unmarked(found, wrong)
    return found


def _check_unmarked(found: RecordColumns, wrong: npt.NDArray[np.bool_]) -> None:
    """A draft may lack the checksum property only where its properties leave no room for it."""
    for index in np.flatnonzero(wrong):
        if int(found.props_len[index]) + CRC_PROPERTY_BYTES + 1 <= 32_767:
            raise MessageIllegal(
                f"message {index} of {len(found)}: the place for its checksum is missing; "
                "nothing was stored"
            )


def stamp_batch(
    buf: bytearray,
    drafts: RecordColumns,
    queue_offsets: Longs,
    positions: Longs,
    store_timestamp: int,
    store_host: bytes,
) -> None:
    """Stamp checked drafts; `buf` is a copy of the bytes that `drafts` describes."""
    if len(drafts) < SCALAR_BELOW or len(store_host) != HOST_V4_BYTES or _any_v6(drafts):
        for index in range(len(drafts)):
            stamp(
                buf,
                int(drafts.starts[index]),
                queue_offset=int(queue_offsets[index]),
                position=int(positions[index]),
                store_timestamp=store_timestamp,
                store_host=store_host,
            )
        return
    blob = np.frombuffer(buf, dtype=np.uint8)
    starts = drafts.starts
    count = len(starts)
    place = np.empty((count, 16), dtype=np.uint8)
    place[:, :8] = queue_offsets.astype(">i8").view(np.uint8).reshape(count, 8)
    place[:, 8:] = positions.astype(">i8").view(np.uint8).reshape(count, 8)
    blob[(starts + QUEUE_OFFSET_AT)[:, None] + np.arange(16)] = place
    stored = np.frombuffer(store_timestamp.to_bytes(8, "big") + store_host, dtype=np.uint8)
    blob[(starts + BORN_HOST_AT + HOST_V4_BYTES)[:, None] + np.arange(16)] = stored
    marks = starts + drafts.sizes - CRC_PROPERTY_BYTES
    marked = _marked(blob, drafts)
    crc32 = zlib.crc32
    view = memoryview(buf)
    crcs = np.fromiter(
        [
            crc32(view[start:mark])
            for start, mark in zip(starts.tolist(), marks.tolist(), strict=True)
        ],
        dtype=np.int64,
        count=count,
    )
    digits = ((crcs & MASK)[:, None] // _TENS % 10 + 48).astype(np.uint8)
    at = (marks + len(CRC_MARK))[:, None] + np.arange(10)
    if marked.all():
        blob[at] = digits
    else:
        blob[at[marked]] = digits[marked]


def _any_v6(found: RecordColumns) -> bool:
    return bool((found.sys_flags & _V6).any())


def _marked(blob: Bytes, found: RecordColumns) -> npt.NDArray[np.bool_]:
    """Which records end in a checksum property."""
    possible = found.props_len >= CRC_PROPERTY_BYTES
    at = np.where(possible, found.starts + found.sizes - CRC_PROPERTY_BYTES, 0)
    same: npt.NDArray[np.bool_] = (blob[at[:, None] + _I20[: len(CRC_MARK)]] == _MARK).all(axis=1)
    return same & possible


# -- what a store reads ---------------------------------------------------------------------------


def verify_batch(found: RecordColumns, positions: Longs | None = None) -> npt.NDArray[np.bool_]:
    """Which records hold their checksums (and lie where they say, if `positions` is given)."""
    good = np.ones(len(found), dtype=np.bool_)
    view = memoryview(found.blob)
    marked = _marked(found.blob, found) if len(found) else good
    starts, sizes = found.starts.tolist(), found.sizes.tolist()
    if positions is not None:
        good &= found.positions == positions
    crcs = np.zeros(len(found), dtype=np.int64)
    crc32 = zlib.crc32
    for index in range(len(found)):
        start, end = starts[index], starts[index] + sizes[index]
        if marked[index]:
            crcs[index] = crc32(view[start : end - CRC_PROPERTY_BYTES])
            continue
        try:
            check_record(view[start:end], 0, end - start, None)
        except Corrupt:
            good[index] = False
    if marked.any():
        digits = ((crcs & MASK)[:, None] // _TENS % 10 + 48).astype(np.uint8)
        ends = found.starts + found.sizes
        at = np.where(marked, ends - CRC_PROPERTY_BYTES + len(CRC_MARK), 0)
        same = (found.blob[at[:, None] + np.arange(10)] == digits).all(axis=1)
        same &= found.blob[ends - 1] == 2
        good &= same | ~marked
    return good


# -- what the projections need --------------------------------------------------------------------

_UNIQ = b"UNIQ_KEY\x01"
_UNIQ_HEX = 32
_TAGS = b"TAGS\x01"
_tag_codes: dict[bytes, int] = {}
_TAG_CACHE_MAX = 65_536


def _tag_code(tag: bytes) -> int:
    code = _tag_codes.get(tag)
    if code is None:
        if len(_tag_codes) >= _TAG_CACHE_MAX:
            _tag_codes.clear()
        code = _tag_codes[tag] = tags_code(tag.decode("utf-8", "replace"))
    return code


def tag_codes(found: RecordColumns) -> Longs:
    """What the queue units of these records keep of their tags; 0 for none."""
    raw = found.blob
    starts, lengths = found.props_at.tolist(), found.props_len.tolist()
    codes: list[int] = []
    for at, length in zip(starts, lengths, strict=True):
        tag = find_property(raw[at : at + length].tobytes(), b"TAGS")
        codes.append(0 if tag is None else _tag_code(tag))
    return np.asarray(codes, dtype=np.int64)


def index_keys(found: RecordColumns) -> list[list[bytes]]:
    """The keys of each record as the key index takes them: the unique key, then the business keys."""
    raw = found.blob
    starts, lengths = found.props_at.tolist(), found.props_len.tolist()
    keys: list[list[bytes]] = []
    for at, length in zip(starts, lengths, strict=True):
        properties = raw[at : at + length].tobytes()
        own: list[bytes] = []
        unique = find_property(properties, b"UNIQ_KEY")
        if unique is not None:
            own.append(unique)
        business = find_property(properties, b"KEYS")
        if business is not None:
            own += [key for key in business.split(b" ") if key]
        keys.append(own)
    return keys


def decode_many(buf: Buffer, *, verify: bool = True) -> list[StoredMessage]:
    """The messages of a pull's body: stored records back to back. Raises Corrupt."""
    messages: list[StoredMessage] = []
    at, end = 0, len(buf)
    while at < end:
        message = decode_record(buf, at, verify=verify)
        messages.append(message)
        at += message.size
    return messages


__all__ = [
    "BORN_TIMESTAMP_AT",
    "RecordColumns",
    "check_drafts",
    "columns",
    "decode_many",
    "index_keys",
    "scan",
    "stamp_batch",
    "tag_codes",
    "verify_batch",
]
