"""Checks that stored bytes are a whole record, and the one that a queue's unit refers to.

RocketMQ 4.9 writes a checksum of the body only, not of the whole record. So a record without one
may be sound, or may be a Kourou record whose last bytes were overwritten. It passes only if its
properties are well formed to the end, which a torn or damaged sector does not leave them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kourou.errors import Corrupt
from kourou.model.limits import CRC_PROPERTY_BYTES
from kourou.protocol import kernel
from kourou.protocol.kernel_python import BODY
from kourou.protocol.record.columns import RecordColumns, as_longs
from kourou.protocol.record.layout import CRC_MARK, parts_of
from kourou.protocol.record.message_record import BlankRecord, CheckedRecord, check_record

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Numbers: TypeAlias = "memoryview[int] | array[int]"
"""Integers of 64 bits."""


def check_stored(view: memoryview, at: int, end: int, position: int) -> CheckedRecord:
    """Check the record at `at`, which must end by `end`, as strictly as possible.

    Raises Corrupt that names the problem; a filler is not a record.
    """
    found = check_record(view, at, end, position)
    if isinstance(found, BlankRecord):
        raise Corrupt(f"filler at {position} instead of a record")
    mark = at + found.size - CRC_PROPERTY_BYTES
    if view[mark : mark + len(CRC_MARK)] != CRC_MARK:
        parts = parts_of(view, at, end)
        properties = bytes(view[parts.props_at : at + found.size])
        if not properties_are_sound(properties):
            raise Corrupt(f"the properties of the record at {position} are damaged")
    return found


def properties_are_sound(properties: bytes) -> bool:
    """True if these are name-value pairs in UTF-8 up to the last byte, without a zero byte."""
    if not properties:
        return True
    if b"\0" in properties:
        return False
    try:
        properties.decode()
    except UnicodeDecodeError:
        return False
    pairs = properties.removesuffix(b"\x02").split(b"\x02")
    return all(pair.find(b"\x01") > 0 for pair in pairs)


def sound(found: RecordColumns, positions: Longs) -> Flags:
    """Which of these stored records pass every check; `positions` are their log positions."""
    results = kernel.verify(found.blob, found.starts, found.sizes, as_longs(positions))
    _check_bodies(found.blob.data, found.starts, found.sizes, results)
    flags: Flags = np.frombuffer(results, np.uint8) != 0
    return flags


@dataclass(frozen=True, slots=True)
class PlacedRecords:
    """Records that units of a queue refer to, in memory; one number per record in each column.

    A record begins at `view[start - base]`; `positions` are those in the log, `indexes` count the
    units from the first one.
    """

    view: memoryview
    base: int
    starts: Numbers
    sizes: Numbers
    positions: Numbers
    indexes: Numbers

    def places(self, rows: Sequence[int]) -> tuple[Numbers, Numbers]:
        """The starts and sizes of these rows."""
        if len(rows) == len(self.starts):
            return self.starts, self.sizes
        starts, sizes = self.starts, self.sizes
        return array("q", [starts[row] for row in rows]), array("q", [sizes[row] for row in rows])


def verify(
    placed: PlacedRecords, topic: bytes | None, queue_id: int, first_offset: int
) -> bytearray:
    """For each record 1 if it is whole and the one referred to, else 0.

    `first_offset` is that of the first unit. `topic` None: records of any queue are accepted.
    """
    results = kernel.verify(
        placed.view,
        placed.starts,
        placed.sizes,
        placed.positions,
        topic,
        queue_id,
        placed.indexes,
        placed.base,
        first_offset,
    )
    _check_bodies(placed.view, placed.starts, placed.sizes, results, placed.base)
    return results


def _check_bodies(
    view: memoryview,
    starts: Longs | Numbers,
    sizes: Longs | Numbers,
    results: bytearray,
    base: int = 0,
) -> None:
    """Records without their own checksum are good only if their properties are sound."""
    if BODY not in results:
        return
    for index in [row for row, result in enumerate(results) if result == BODY]:
        start = int(starts[index]) - base
        end = start + int(sizes[index])
        parts = parts_of(view, start, end)
        results[index] = properties_are_sound(bytes(view[parts.props_at : end]))
