"""Many records at once: the rules of kourou.protocol.record, applied to whole batches.

Lives here: checking a client's batch, stamping it, verifying what a store reads, in the words of
errors. May not live here: the work itself (kourou.protocol.kernel).

Invariants:  whatever the bytes are, only MessageIllegal (drafts) or Corrupt (stored) is raised
             a batch that `check_drafts` accepts can be stamped without further checks
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kourou.errors import MessageIllegal
from kourou.model.limits import BATCH_MESSAGES_MAX, BODY_SIZE_BYTES_MAX, RECORD_FIXED_BYTES
from kourou.protocol import kernel
from kourou.protocol.record import decode_many
from kourou.protocol.record_columns import (
    Bytes,
    Longs,
    Marks,
    RecordColumns,
    ScanStop,
    as_array,
    as_longs,
    as_table,
    columns,
    problem_of,
    scan,
)
from kourou.protocol.record_keys import topics_of
from kourou.protocol.record_layout import Buffer
from kourou.protocol.single_draft import draft_problem_text

__all__ = [
    "RecordColumns",
    "ScanStop",
    "check_drafts",
    "columns",
    "decode_many",
    "scan",
    "stamp_batch",
    "topics_of",
    "verify_batch",
]


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
        told = np.ascontiguousarray(sizes, dtype=np.int64)
    except (OverflowError, ValueError, TypeError) as error:
        raise MessageIllegal("the sizes are not 64-bit integers; nothing was stored") from error
    count = len(told)
    if not 0 < count <= BATCH_MESSAGES_MAX:
        raise MessageIllegal(f"a batch has 1 to {BATCH_MESSAGES_MAX} messages, not {count}")
    # Sizes of 31 bits cannot overflow the sum of 2^16 of them.
    low, high = int(told.min()), int(told.max())
    if low < RECORD_FIXED_BYTES or high >= 2**31 or int(told.sum()) != len(blob):
        raise MessageIllegal("the sizes do not tile the records; nothing was stored")
    table, moves, problem, bad = kernel.check_drafts(blob, told, body_size_max)
    if problem:
        start = int(told[:bad].sum())
        text = draft_problem_text(problem, blob.data[start : start + int(told[bad])], body_size_max)
        text = text or problem_of(blob, start, int(told[bad]))
        raise MessageIllegal(f"message {bad} of {count}: {text}; nothing was stored")
    found = RecordColumns(blob, as_table(table))
    if 1 in moves:
        found.elsewhere = [index for index, moving in enumerate(moves) if moving]
    return found


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
    """Stamp checked drafts, back to back; `buf` is a copy of the bytes that `drafts` describes.

    `queue_ids` replace those of the drafts, where the broker chooses the queues. An IPv4 store host
    is widened for drafts with room for IPv6; MessageIllegal is raised for the opposite.
    """
    bad = kernel.stamp(
        buf,
        drafts.sizes,
        as_longs(queue_offsets),
        as_longs(positions),
        store_timestamp,
        store_host,
        None if queue_ids is None else as_longs(queue_ids),
    )
    if bad >= 0:
        raise MessageIllegal(f"draft {bad} has no room for the broker's IPv6 address")


# -- what a store reads ---------------------------------------------------------------------------


def verify_batch(found: RecordColumns, positions: Longs | None = None) -> Marks:
    """Which records hold their checksums and lie where they say.

    The place is compared with `positions`, else with `base + starts` where the columns have a base.
    The checksum is that of the whole record where there is one, else that of the body.
    """
    if positions is None and found.base is not None:
        positions = found.starts + found.base
    places = None if positions is None else as_longs(positions)
    verdicts = kernel.verify(found.blob, found.starts, found.sizes, places)
    good: Marks = np.frombuffer(verdicts, np.uint8) != 0
    return good
