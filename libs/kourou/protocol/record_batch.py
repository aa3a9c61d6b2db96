"""Many records at once: the rules of kourou.protocol.record, applied to whole batches in numpy.

Lives here: checking a client's batch, stamping it, verifying what a store reads.
May not live here: a rule about one record that kourou.protocol.record does not have too.

Nothing loops over records on the good path except the checksums, which zlib computes. A handful of
records goes the scalar way, since numpy's fixed costs are higher; the result is the same.

Invariants:  whatever the bytes are, only MessageIllegal (drafts) or Corrupt (stored) is raised
             a batch that `check_drafts` accepts can be stamped without further checks
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kourou.errors import Corrupt, MessageIllegal
from kourou.model.limits import (
    BATCH_MESSAGES_MAX,
    BODY_SIZE_BYTES_MAX,
    CRC_PROPERTY_BYTES,
    RECORD_FIXED_BYTES,
)
from kourou.protocol.record import decode_many, stamp, verify_parts
from kourou.protocol.record_columns import (
    SCALAR_BELOW,
    Bytes,
    Longs,
    Marks,
    RecordColumns,
    ScanStop,
    as_array,
    columns,
    parsed,
    scan,
    sliding,
    store_places,
)
from kourou.protocol.record_keys import codes_and_keys, tag_codes, topics_of
from kourou.protocol.record_layout import (
    ANY_V6,
    CRC_DIGITS,
    CRC_MARK,
    CRC_MASK,
    CRC_VALUE_BYTES,
    HOST_V6_BYTES,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    STORE_V6,
    Buffer,
    Parts,
    parts_of,
    widen_host,
)
from kourou.protocol.single_draft import (
    BODY_DAMAGED,
    CRC_ROOM_FROM,
    NO_CRC,
    TRANSACTION,
    TRANSACTIONAL,
    draft_problem,
    may_go_elsewhere,
    too_large,
)

__all__ = [
    "RecordColumns",
    "ScanStop",
    "check_drafts",
    "codes_and_keys",
    "columns",
    "decode_many",
    "scan",
    "stamp_batch",
    "tag_codes",
    "topics_of",
    "verify_batch",
]

_MARK = np.void(CRC_MARK)
_TENS = 10 ** np.arange(CRC_DIGITS, dtype=np.int64)


# -- what a client sends --------------------------------------------------------------------------


def check_drafts(
    buf: Buffer,
    sizes: Longs | Sequence[int],
    body_size_max: int = BODY_SIZE_BYTES_MAX,
) -> RecordColumns:
    """The broker's test of a client's batch: drafts of these sizes, back to back, and nothing else.

    Every length field must agree, every body must match its checksum and not exceed
    `body_size_max`, the checksum property must have its place. Raises MessageIllegal that names the
    index of the first bad message. `elsewhere` of the columns says which drafts may be delayed or
    part of a transaction.
    """
    blob = as_array(buf)
    try:
        told = np.asarray(sizes, dtype=np.int64)
    except (OverflowError, ValueError, TypeError) as error:
        raise MessageIllegal("the sizes are not 64-bit integers; nothing was stored") from error
    count = len(told)
    if not 0 < count <= BATCH_MESSAGES_MAX:
        raise MessageIllegal(f"a batch has 1 to {BATCH_MESSAGES_MAX} messages, not {count}")
    ends = told.cumsum()
    # Sizes of 31 bits, which their bits together show, cannot overflow the sum of 2^16 of them.
    bits = int(np.bitwise_or.reduce(told))
    if not 0 < bits < 2**31 or ends[-1] != len(blob) or int(told.min()) < RECORD_FIXED_BYTES:
        raise MessageIllegal("the sizes do not tile the records; nothing was stored")
    found = RecordColumns(blob, ends - told, told)
    problem = parsed(found)
    if problem is not None:
        _refuse(problem[0], count, problem[1])
    few = found.parts()
    if few is not None:
        _check_few(found, few, body_size_max)
        return found
    body_len = found.body_len
    if int(body_len.max()) > body_size_max:
        index = int(np.argmax(body_len > body_size_max))
        _refuse(index, count, too_large(int(body_len[index]), body_size_max))
    bits = int(np.bitwise_or.reduce(found.sys_flags))
    if bits & TRANSACTION:
        index = int(np.argmax(found.sys_flags & TRANSACTION != 0))
        _refuse(index, count, TRANSACTIONAL)
    props_len = found.props_len
    marked = _marked(found, props_len)
    if marked is not None:
        wrong = ~marked & (props_len < CRC_ROOM_FROM)
        if wrong.any():
            _refuse(int(np.argmax(wrong)), count, NO_CRC)
    _check_bodies(found)
    _find_elsewhere(found, ends, int(props_len.max()))
    return found


def _find_elsewhere(found: RecordColumns, ends: Longs, width: int) -> None:
    """Note the drafts that may have to be stored in another topic first.

    Bodies are long and properties short, so only the last `width` bytes of each draft are looked
    at: as many as the longest properties have.
    """
    short = ends[0] >= width and width * len(found) < len(found.blob)
    looked = sliding(found.blob, f"V{width}")[ends - width] if short else found.blob
    if may_go_elsewhere(looked.tobytes()):
        found.elsewhere = [
            index for index, text in enumerate(found.property_texts()) if may_go_elsewhere(text)
        ]


def _check_bodies(found: RecordColumns) -> None:
    """Refuse the first draft whose body is not what its checksum says."""
    view = found.blob.data
    crc32 = zlib.crc32
    body_at = found.body_at
    places = zip(body_at.tolist(), (body_at + found.body_len).tolist(), strict=True)
    crcs = [crc32(view[a:b]) & CRC_MASK for a, b in places]
    told = found.body_crcs.tolist()
    if crcs != told:
        bad = next(index for index, crc in enumerate(crcs) if crc != told[index])
        _refuse(bad, len(told), BODY_DAMAGED)


def _refuse(index: int, count: int, problem: str) -> None:
    raise MessageIllegal(f"message {index} of {count}: {problem}; nothing was stored")


def _check_few(found: RecordColumns, few: list[Parts], body_size_max: int) -> None:
    view = found.blob.data
    end = 0
    elsewhere: list[int] = []
    for index, parts in enumerate(few):
        end += parts.size
        properties = bytes(view[parts.props_at : end])
        problem = draft_problem(view, parts, properties, body_size_max)
        if problem:
            _refuse(index, len(few), problem)
        if may_go_elsewhere(properties):
            elsewhere.append(index)
    found.elsewhere = elsewhere


def _marked(found: RecordColumns, props_len: Longs | None = None) -> Marks | None:
    """Which records end in a checksum property, whatever its value; None if all do.

    `props_len` are the columns' own, where the caller has them already.
    """
    marks = found.starts + found.sizes - CRC_PROPERTY_BYTES
    names = sliding(found.blob, f"V{len(CRC_MARK)}")[marks]
    if props_len is None:
        props_len = found.props_len
    if names.tobytes() == CRC_MARK * len(marks) and int(props_len.min()) >= CRC_PROPERTY_BYTES:
        return None
    marked: Marks = names == _MARK
    marked &= props_len >= CRC_PROPERTY_BYTES
    return marked


# -- what a broker stores -------------------------------------------------------------------------


def stamp_batch(
    buf: bytearray | Bytes,
    drafts: RecordColumns,
    queue_offsets: Longs,
    positions: Longs,
    store_timestamp: int,
    store_host: bytes,
    *,
    queue_ids: Longs | None = None,
) -> None:
    """Stamp checked drafts; `buf` is a copy of the bytes that `drafts` describes.

    `queue_ids` replace those of the drafts, where the broker chooses the queues. An IPv4 store host
    is widened for drafts with room for IPv6; MessageIllegal is raised for the opposite.
    """
    if len(drafts) < SCALAR_BELOW and isinstance(buf, bytearray):
        starts = drafts.starts.tolist()
        for index, start in enumerate(starts):
            stamp(
                buf,
                start,
                queue_offset=int(queue_offsets[index]),
                position=int(positions[index]),
                store_timestamp=store_timestamp,
                store_host=store_host,
                queue_id=None if queue_ids is None else int(queue_ids[index]),
            )
        return
    blob = as_array(buf)
    _stamp_hosts(blob, drafts, store_timestamp, store_host)
    place = np.empty((len(drafts), 2), dtype=">i8")
    place[:, 0] = queue_offsets
    place[:, 1] = positions
    sliding(blob, "V16")[drafts.starts + QUEUE_OFFSET_AT] = place.view("V16")[:, 0]
    if queue_ids is not None:
        sliding(blob, ">i4")[drafts.starts + QUEUE_ID_AT] = queue_ids
    _stamp_checksums(blob, drafts)


def _stamp_hosts(
    blob: Bytes, drafts: RecordColumns, store_timestamp: int, store_host: bytes
) -> None:
    stamped = store_timestamp.to_bytes(8, "big") + store_host
    bits = int(np.bitwise_or.reduce(drafts.sys_flags))
    if not bits & ANY_V6 and len(stamped) == 16:
        sliding(blob, "V16")[drafts.starts + STORE_TIMESTAMP_AT] = np.void(stamped)
        return
    wide: Marks = drafts.sys_flags & STORE_V6 != 0
    if len(store_host) == HOST_V6_BYTES and not wide.all():
        raise MessageIllegal("a draft has no room for the broker's IPv6 address")
    at = store_places(drafts)
    if not wide.all():
        sliding(blob, "V16")[at[~wide]] = np.void(stamped)
    if wide.any():
        sliding(blob, "V28")[at[wide]] = np.void(stamped[:8] + widen_host(store_host))


def _stamp_checksums(blob: Bytes, drafts: RecordColumns) -> None:
    starts = drafts.starts
    marks = starts + drafts.sizes - CRC_PROPERTY_BYTES
    marked = _marked(drafts)
    if marked is not None:
        starts, marks = starts[marked], marks[marked]
    values = _values(_checksums(blob, starts, marks))
    sliding(blob, f"V{CRC_VALUE_BYTES}")[marks + len(CRC_MARK)] = values


def _checksums(blob: Bytes, starts: Longs, ends: Longs) -> Longs:
    view = blob.data
    crc32 = zlib.crc32
    return np.asarray(
        [crc32(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)],
        dtype=np.int64,
    )


def _values(crcs: Longs) -> npt.NDArray[np.void]:
    """The end of each checksum property, as `crc_value` writes it."""
    values = np.full((len(crcs), CRC_VALUE_BYTES), 2, dtype=np.uint8)
    np.add((crcs & CRC_MASK)[:, None] // _TENS % 10, 48, out=values[:, :-1], casting="unsafe")
    return values.view(f"V{CRC_VALUE_BYTES}")[:, 0]


# -- what a store reads ---------------------------------------------------------------------------


def verify_batch(found: RecordColumns, positions: Longs | None = None) -> Marks:
    """Which records hold their checksums and lie where they say.

    The place is compared with `positions`, else with `base + starts` where the columns have a base.
    The checksum is that of the whole record where there is one, else that of the body.
    """
    count = len(found)
    good: Marks = np.ones(count, dtype=np.bool_)
    if not count:
        return good
    if positions is not None:
        good &= found.positions == positions
    elif found.base is not None:
        good &= found.positions == found.starts + found.base
    few = found.parts()
    if few is not None:
        view = found.blob.data
        for index, parts in enumerate(few):
            good[index] &= _holds(view, int(found.starts[index]), parts)
        return good
    marked = _marked(found)
    starts, ends = found.starts, found.starts + found.sizes
    if marked is not None:
        view = found.blob.data
        for index in np.flatnonzero(~marked).tolist():
            start = int(starts[index])
            good[index] &= _holds(view, start, parts_of(view, start, int(ends[index])))
        starts, ends = starts[marked], ends[marked]
    marks = ends - CRC_PROPERTY_BYTES
    wanted = _values(_checksums(found.blob, starts, marks))
    written = sliding(found.blob, f"V{CRC_VALUE_BYTES}")[marks + len(CRC_MARK)]
    good[slice(None) if marked is None else marked] &= written == wanted
    return good


def _holds(view: memoryview, at: int, parts: Parts) -> bool:
    try:
        verify_parts(view, at, parts)
    except Corrupt:
        return False
    return True
