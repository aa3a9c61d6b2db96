"""Which of the records that were read does a test of their properties let through?

Lives here: finding the properties of a verified record, asking the test, and where a read ends that
has found enough.
May not live here: what the test is (kourou.filtering), reading and verifying (kourou.store.reads).

State: none.

Records are verified before they are tested: a damaged property must not make a message disappear
that was wanted. It is reported as damaged, like any other.
"""

from __future__ import annotations

import struct

from kourou.engine.ports import PropertyTest, QueueRead
from kourou.protocol.record_layout import (
    ANY_V6,
    BODY_LENGTH_AT,
    HEAD_BYTES,
    SYS_FLAG_AT,
    parts_of,
)

_LENGTHS = struct.Struct(f">i{BODY_LENGTH_AT - SYS_FLAG_AT - 4}xi").unpack_from
_AFTER_BODY = HEAD_BYTES + 1 + 2
"""What lies before the properties, beside body and topic: the head and two lengths."""


def sift(
    read: QueueRead,
    offsets: list[int],
    positions: list[int],
    wanted: PropertyTest,
    *,
    max_messages: int,
    max_bytes: int,
) -> None:
    """Keep in `read` what passes, as long as it fits; the first record that passes always does.

    `offsets` and `positions` are those of its records. Where it ends early, it ends before the
    first record that passes and does not fit.
    """
    kept: list[memoryview] = []
    size = 0
    last = -1
    for index, record in enumerate(read.records):
        if not wanted(_properties(record)):
            continue
        if kept and (len(kept) == max_messages or size + len(record) > max_bytes):
            read.next_offset = offsets[index]
            read.corrupt_offsets = [
                each for each in read.corrupt_offsets if each < read.next_offset
            ]
            break
        kept.append(record)
        size += len(record)
        last = positions[index]
    read.records = kept
    read.size_bytes = size
    read.last_position = last


def _properties(record: memoryview) -> bytes:
    """The properties as they are stored, after one 0x02."""
    sys_flag, body_length = _LENGTHS(record, SYS_FLAG_AT)
    if sys_flag & ANY_V6:
        return b"\x02" + record[parts_of(record, 0, len(record)).props_at :]
    topic_length = record[HEAD_BYTES + body_length]
    return b"\x02" + record[_AFTER_BODY + body_length + topic_length :]
