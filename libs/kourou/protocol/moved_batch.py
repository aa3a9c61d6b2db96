"""Many records at once as drafts for other queues: `record_moves.moved_draft`, in numpy.

Lives here: which bytes of each record stay and which are written anew. May not live here: a rule
that kourou.protocol.record_moves does not have too; why they are moved.

State: none.

Only the joining of each draft is a loop: a few slices of bytes, whatever the record holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kourou.model.limits import PROPERTIES_SIZE_BYTES_MAX
from kourou.protocol.record_columns import Bytes, Longs, RecordColumns, sliding
from kourou.protocol.record_layout import (
    ANY_V6,
    BORN_V6,
    HEAD_BYTES,
    HOST_V4_BYTES,
    POSITION_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    STORE_V6,
    SYS_FLAG_AT,
    V6_EXTRA_BYTES,
)

_TWO_BYTES = [length.to_bytes(2, "big") for length in range(PROPERTIES_SIZE_BYTES_MAX + 1)]

_BEHIND_PREPARED = 12
"""From the prepared offset to the body: itself, and the body's length."""


def head_bytes(found: RecordColumns) -> int | None:
    """How many bytes stand before the body of each record; None if hosts are of mixed width."""
    bits = int(found.sys_flags[0]) & ANY_V6
    if bool(((found.sys_flags & ANY_V6) != bits).any()):
        return None
    return HEAD_BYTES + V6_EXTRA_BYTES * bits.bit_count()


def moved_drafts(
    found: RecordColumns,
    texts: Sequence[bytes],
    topics: Sequence[bytes],
    *,
    queue_ids: Longs | int,
    sys_flags: Longs,
    prepared: Longs | int = 0,
) -> list[bytes]:
    """The records as drafts for these topics and queues, with these properties.

    `texts` are the properties whole, the checksum's place at their end, of a length that fits.
    `head_bytes` must not be None, and the records' bodies must match their checksums, which are
    kept.
    """
    count, width = len(found), head_bytes(found)
    assert width is not None, "hosts of mixed width"
    sizes = width + 3 + found.body_len
    sizes += np.fromiter(map(len, texts), np.int64, count)
    sizes += np.fromiter(map(len, topics), np.int64, count)
    heads: Bytes = sliding(found.blob, f"V{width}")[found.starts].view(np.uint8)
    heads = heads.reshape(count, width)
    _put(heads, 0, sizes, ">i4")
    _put(heads, QUEUE_ID_AT, queue_ids, ">i4")
    heads[:, QUEUE_OFFSET_AT : POSITION_AT + 8] = 0
    _put(heads, SYS_FLAG_AT, sys_flags, ">i4")
    bits = int(found.sys_flags[0])
    stored_at = STORE_TIMESTAMP_AT + (V6_EXTRA_BYTES if bits & BORN_V6 else 0)
    host_bytes = HOST_V4_BYTES + (V6_EXTRA_BYTES if bits & STORE_V6 else 0)
    heads[:, stored_at : stored_at + 8 + host_bytes] = 0
    _put(heads, width - _BEHIND_PREPARED, prepared, ">i8")
    raw, view = heads.tobytes(), found.blob.data
    names = {topic: len(topic).to_bytes(1, "big") + topic for topic in set(topics)}
    body_at = found.body_at
    rows = zip(
        range(0, count * width, width),
        body_at.tolist(),
        (body_at + found.body_len).tolist(),
        map(names.__getitem__, topics),
        map(_TWO_BYTES.__getitem__, map(len, texts)),
        texts,
        strict=True,
    )
    return [
        b"".join((raw[at : at + width], view[begin:end], topic, length, text))
        for at, begin, end, topic, length, text in rows
    ]


def _put(heads: Bytes, at: int, values: Longs | int, kind: str) -> None:
    """Write one number into each head."""
    column = np.empty(len(heads), kind)
    column[:] = values
    width = column.dtype.itemsize
    heads[:, at : at + width] = column.view(np.uint8).reshape(len(heads), width)
