"""The boundaries of the records in a run."""

from __future__ import annotations

import struct

from kourou.errors import DecodeError
from kourou.model.limits import RECORD_FIXED_BYTES
from kourou.protocol.record.layout import QUEUE_OFFSET_AT
from kourou_filter_server.inputs import Buffer

NO, YES = 0, 1
"""Filter results."""

_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


def bounds_of(run: Buffer) -> list[int]:
    """The start of each record, and the end of the run as the last element.

    Raises DecodeError if the record sizes do not add up to the end of the run.
    """
    unpack, end, at = _SIZE.unpack_from, len(run), 0
    last = end - RECORD_FIXED_BYTES
    bounds = [0]
    while at <= last:
        size = unpack(run, at)[0]
        if size < RECORD_FIXED_BYTES:
            raise DecodeError(f"the record of {size} bytes at {at} is invalid")
        at += size
        bounds.append(at)
    if at != end:
        raise DecodeError(f"the last record ends at {at}, but the records end at {end}")
    return bounds


def offset_of(run: Buffer, at: int) -> int:
    """The queue offset of the record that starts at `at`."""
    return int(_OFFSET.unpack_from(run, at + QUEUE_OFFSET_AT)[0])
