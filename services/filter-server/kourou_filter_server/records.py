"""Where the records of a run begin and end."""

from __future__ import annotations

import struct

from kourou.errors import DecodeError
from kourou.model.limits import RECORD_FIXED_BYTES
from kourou.protocol.record_layout import QUEUE_OFFSET_AT
from kourou_filter_server.inputs import Buffer

NO, YES = 0, 1
"""Verdicts."""

_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


def bounds_of(run: Buffer) -> list[int]:
    """Where each record begins, and at last where the run ends.

    Raises DecodeError if the sizes do not lead to the very end.
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
    """The queue offset of the record that begins there."""
    return int(_OFFSET.unpack_from(run, at + QUEUE_OFFSET_AT)[0])
