"""Applying a property filter to records that were read.

Records are verified before they are tested: a damaged property must not make a matching message
disappear. A damaged record is reported as such, like any other.
"""

from __future__ import annotations

from kourou.engine.ports import PropertyTest, QueueRead
from kourou.protocol.kernel import values


def filter_records(
    read: QueueRead,
    offsets: list[int],
    positions: list[int],
    wanted: PropertyTest,
    *,
    max_messages: int,
    max_bytes: int,
) -> None:
    """Keep in `read` the records that pass, as long as they fit; the first one is always kept.

    `offsets` and `positions` are those of its records. If the result is full, it ends before the
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
