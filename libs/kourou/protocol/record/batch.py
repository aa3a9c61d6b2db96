"""Many records at once: the rules of `message_record`, applied to whole batches.

Invariants:  for any bytes, only MessageIllegal (drafts) or Corrupt (stored) is raised
             a batch that `check_drafts` accepts can be appended without further checks
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from kourou.errors import MessageIllegal
from kourou.model.limits import BATCH_MESSAGES_MAX, BODY_SIZE_BYTES_MAX
from kourou.protocol import kernel
from kourou.protocol.kernel_python import DAMAGED, NO_CRC, TOO_LARGE, TRANSACTIONAL, UNTILED
from kourou.protocol.record.columns import (
    Longs,
    Marks,
    RecordColumns,
    ScanStop,
    as_array,
    as_longs,
    columns,
    problem_of,
    scan,
)
from kourou.protocol.record.layout import Buffer, parts_of
from kourou.protocol.record.message_record import decode_many

__all__ = [
    "RecordColumns",
    "ScanStop",
    "check_drafts",
    "columns",
    "decode_many",
    "scan",
    "verify_batch",
]


_TEXTS = {
    TRANSACTIONAL: "its flags name a phase of a transaction, which only a broker writes",
    NO_CRC: "the place for its checksum is missing",
    DAMAGED: "its body does not match its checksum (BODYCRC), so it was damaged: send it again",
}


# -- drafts from clients ------------------------------------------------------------------------


def check_drafts(
    buf: Buffer,
    sizes: Longs | Sequence[int],
    body_size_max: int = BODY_SIZE_BYTES_MAX,
) -> RecordColumns:
    """Check a client's batch: adjacent drafts of these sizes, and nothing else.

    Every length field must agree, every body must match its checksum and not exceed
    `body_size_max`, and the checksum property must have its place. Raises MessageIllegal that names
    the index of the first bad message. `elsewhere` of the result lists the drafts that may be
    delayed or part of a transaction.
    """
    try:
        told = sizes if isinstance(sizes, array) else array("q", sizes)
    except (OverflowError, ValueError, TypeError) as error:
        raise MessageIllegal("the sizes are not 64-bit integers; nothing was stored") from error
    count = len(told)
    if not 0 < count <= BATCH_MESSAGES_MAX:
        raise MessageIllegal(f"a batch has 1 to {BATCH_MESSAGES_MAX} messages, not {count}")
    table, moves, problem, bad = kernel.check_drafts(buf, told, body_size_max)
    if problem == UNTILED:
        raise MessageIllegal("the sizes do not tile the records; nothing was stored")
    if problem:
        blob = as_array(buf)
        start = sum(told[:bad])
        text = _TEXTS.get(problem) or problem_of(blob, start, told[bad])
        if problem == TOO_LARGE:
            parts = parts_of(blob.data, start, start + told[bad])
            size = parts.body_end - parts.body_at
            text = f"its body has {size} bytes; maxMessageSize is {body_size_max}"
        raise MessageIllegal(f"message {bad} of {count}: {text}; nothing was stored")
    found = RecordColumns(buf, table)
    if 1 in moves:
        found.elsewhere = [index for index, moving in enumerate(moves) if moving]
    return found


# -- stored records -----------------------------------------------------------------------------


def verify_batch(found: RecordColumns, positions: Longs | None = None) -> Marks:
    """Which records match their checksums and have the right position.

    The position is compared with `positions`, else with `base + starts` if the columns have a base.
    The checksum is that of the whole record if there is one, else that of the body.
    """
    if positions is None and found.base is not None:
        positions = found.starts + found.base
    places = None if positions is None else as_longs(positions)
    verdicts = kernel.verify(found.blob, found.starts, found.sizes, places)
    good: Marks = np.frombuffer(verdicts, np.uint8) != 0
    return good
