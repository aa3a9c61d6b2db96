"""Which of the records that were read does a test of their properties let through?

Records are verified before they are tested: a damaged property must not make a message disappear
that was wanted. It is reported as damaged, like any other.
"""

from __future__ import annotations

from kourou.engine.ports import PropertyTest, QueueRead
from kourou.protocol.kernel import values


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
    records = read.records
    kept: list[memoryview] = []
    size = 0
    last = -1
    for index, found in enumerate(values(records, wanted.names)):
        if not wanted(found):
            continue
        record = records[index]
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
