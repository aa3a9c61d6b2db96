"""The bytes of an index file: header, slots, entries.

    offset 0                  header, 40 bytes
    40                        slots, 4 bytes each: the number of the newest entry, 0 for none
    40 + 4 * slots            entries, 20 bytes each; entry 0 is never used

State: none. Format: docs/formats/key-index.md.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from kourou.model.limits import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

ENTRY = np.dtype(
    [("key_hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
"""`seconds` since the file's begin time; `previous` is the slot's next older entry, 0 for none."""

SECONDS_MAX = 0x7FFF_FFFF
ENTRY_STRUCT = struct.Struct(">iqii")
SLOT_STRUCT = struct.Struct(">i")
_HEADER = struct.Struct(">4q2i")

assert ENTRY.itemsize == INDEX_ENTRY_BYTES == ENTRY_STRUCT.size
assert _HEADER.size == INDEX_HEADER_BYTES
assert SLOT_STRUCT.size == INDEX_SLOT_BYTES


class IndexHeader(NamedTuple):
    """The first 40 bytes. Times are the store times in ms of the first and the last entry.

    `used_slots` is the number of slots that are not empty; `next_number` is the number of the next
    entry, from 1: entry 0 is never used.
    """

    begin_ms: int = 0
    end_ms: int = 0
    begin_position: int = 0
    end_position: int = 0
    used_slots: int = 0
    next_number: int = 1

    def encode(self) -> bytes:
        """The bytes on disk."""
        return _HEADER.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> IndexHeader:
        """The header of a file; a file never flushed has zeros, and no entries."""
        header = cls(*_HEADER.unpack(data))
        return header._replace(next_number=1) if header.next_number == 0 else header

    def successor(self) -> IndexHeader:
        """The header of the next new file, as in RocketMQ: it starts where this one ends."""
        return IndexHeader(self.end_ms, self.end_ms, self.end_position, self.end_position)


def file_size(slot_count: int, entry_count: int) -> int:
    """Length in bytes of an index file."""
    return INDEX_HEADER_BYTES + slot_count * INDEX_SLOT_BYTES + entry_count * INDEX_ENTRY_BYTES
