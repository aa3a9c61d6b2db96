"""Many records as columns: one numpy array per field, made by the record kernel.

`check_drafts` applies the rules of `message_record` to a whole batch.

Invariants:  every index in `RecordColumns` is inside its blob, for any bytes
             IPv4, IPv6 and mixed batches give the same columns
             for any bytes, only MessageIllegal (drafts) or Corrupt (stored) is raised
             a batch that `check_drafts` accepts can be appended without further checks
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kourou.errors import Corrupt, MessageIllegal
from kourou.model.limits import BATCH_MESSAGES_MAX, BODY_SIZE_BYTES_MAX, RECORD_FIXED_BYTES
from kourou.protocol import kernel
from kourou.protocol.kernel_python import (
    DAMAGED,
    FIELDS,
    NO_CRC,
    TOO_LARGE,
    TRANSACTIONAL,
    UNTILED,
)
from kourou.protocol.record.layout import BLANK_MAGIC, MAGIC, Buffer, parts_of

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Marks = npt.NDArray[np.bool_]

_view = cast("Callable[[object], memoryview]", memoryview)
"""For numpy's arrays too, whose stubs do not say before Python 3.12 that they are buffers."""

_SIZE_MAGIC = struct.Struct(">II")
_SIZE, _POSITION, _STORED = map(FIELDS.index, ("size", "position", "store_timestamp"))


def sliding(blob: Bytes, dtype: np.dtype[np.void] | str) -> npt.NDArray[Any]:
    """A view whose element i is the value that begins at byte i, to gather and scatter at once."""
    kind = np.dtype(dtype)
    room = len(blob) - kind.itemsize + 1
    return np.ndarray((max(room, 0),), kind, blob, 0, (1,))


class ScanStop(Enum):
    """Why a scan of records ended."""

    END = "the buffer ends with a record's end"
    CUT = "the next record is not wholly in the buffer"
    BLANK = "a filler closes the segment"
    ZERO = "nothing is written here yet"
    BAD = "there is no record at this position"


class _Field:
    """One of the kernel's FIELDS of all records, a number for each."""

    def __init__(self, name: str) -> None:
        self._row = FIELDS.index(name)

    def __get__(self, of: RecordColumns, owner: type[RecordColumns]) -> Longs:
        row: Longs = of.table[self._row]
        return row


class RecordColumns:
    """Fields of many records. `*_at` and `starts` are indexes into `blob`; times are ms.

    `stop` and `next_at` say why and where a scan ended. `elsewhere` has the checked drafts that may
    have to be stored in another topic first (kernel_python.check_drafts). Arrays must not be
    written to.
    """

    starts = _Field("start")
    sizes = _Field("size")
    body_crcs = _Field("crc")  # BODYCRC, of the stored bodies
    queue_ids = _Field("queue_id")
    queue_offsets = _Field("queue_offset")
    positions = _Field("position")
    sys_flags = _Field("sys_flag")
    born_timestamps = _Field("born_timestamp")
    store_timestamps = _Field("store_timestamp")
    reconsume_times = _Field("reconsume_times")
    body_at = _Field("body_at")
    _body_end = _Field("body_end")
    _topic_end = _Field("topic_end")

    __slots__ = (
        "_blob",
        "_count",
        "_rows",
        "elsewhere",
        "next_at",
        "raw",
        "raw_table",
        "stop",
    )

    def __init__(self, raw: Buffer | Bytes, raw_table: bytearray | Longs) -> None:
        """`raw_table` has a row for each of the kernel's FIELDS, a column for each record."""
        self.raw = raw
        self.raw_table = raw_table
        self.stop = ScanStop.END
        self.next_at = len(raw)
        self.elsewhere: Sequence[int] = ()
        self._blob: Bytes | None = None
        self._rows: Longs | None = None
        nbytes = raw_table.nbytes if isinstance(raw_table, np.ndarray) else len(raw_table)
        self._count = nbytes // (8 * len(FIELDS))

    def __len__(self) -> int:
        return self._count

    @property
    def blob(self) -> Bytes:
        """The bytes that contain the records."""
        if self._blob is None:
            self._blob = as_array(self.raw)
        return self._blob

    @property
    def table(self) -> Longs:
        """A row for each of the kernel's FIELDS, a column for each record."""
        rows = self._rows
        if rows is None:
            table = self.raw_table
            rows = table if isinstance(table, np.ndarray) else as_table(table)
            self._rows = rows
        return rows

    @property
    def body_len(self) -> Longs:
        """Sizes of the stored bodies in bytes."""
        return self._body_end - self.body_at

    @property
    def props_at(self) -> Longs:
        """Starts of the properties."""
        return self._topic_end + 2

    @property
    def props_len(self) -> Longs:
        """Sizes of the properties in bytes: they extend to the record's end."""
        return self.starts + self.sizes - self._topic_end - 2

    @property
    def _numbers(self) -> memoryview:
        """The table as plain integers: cheaper than an array for a few of them."""
        return _view(self.raw_table).cast("B").cast("q")

    @property
    def span(self) -> tuple[int, int]:
        """The start of the first record and the end of the last one, as positions."""
        numbers, count = self._numbers, self._count
        ends = numbers[(_POSITION + 1) * count - 1] + numbers[(_SIZE + 1) * count - 1]
        return numbers[_POSITION * count], ends

    @property
    def newest_ms(self) -> int:
        """When a broker stored the last record."""
        return self._numbers[(_STORED + 1) * self._count - 1]

    def record(self, index: int) -> memoryview:
        """The bytes of one record."""
        numbers, count = self._numbers, self._count
        start = numbers[index]
        return _view(self.raw)[start : start + numbers[count + index]]

    def properties(self, index: int) -> bytes:
        """The encoded properties of one record."""
        at = int(self._topic_end[index]) + 2
        return self.blob[at : int(self.starts[index]) + int(self.sizes[index])].tobytes()

    def records(self) -> list[memoryview]:
        """The bytes of each record."""
        numbers, count = self._numbers, self._count
        view = _view(self.raw)
        places = zip(numbers[:count], numbers[count : 2 * count], strict=True)
        return [view[start : start + size] for start, size in places]

    def select(self, which: npt.NDArray[np.intp] | Marks | slice) -> RecordColumns:
        """The records chosen by indexes, marks or a slice, over the same blob."""
        return RecordColumns(self.blob, np.ascontiguousarray(self.table[:, which]))


# -- structure ------------------------------------------------------------------------------------


def as_table(table: bytearray) -> Longs:
    """A table of the kernel as rows of numbers, one per field."""
    return np.frombuffer(table, np.int64).reshape(len(FIELDS), -1)


def as_longs(numbers: Longs) -> Longs:
    """These numbers as the kernel reads them: contiguous, 64 bits each."""
    return np.ascontiguousarray(numbers, np.int64)


def as_array(buf: Buffer | Bytes) -> Bytes:
    """The buffer as a numpy array of bytes, not copied."""
    return buf if isinstance(buf, np.ndarray) else np.frombuffer(buf, dtype=np.uint8)


def problem_of(blob: Bytes, start: int, size: int) -> str:
    """The problem of the bytes at this place, which are not a record of this size."""
    if start < 0 or size < 0 or start + size > len(blob):
        return "it is outside the given bytes"
    try:
        parts = parts_of(blob.data, start, start + size)
    except Corrupt as error:
        return error.message
    return f"size: the record has {parts.size} bytes, but {size} are present"


def columns(buf: Buffer | Bytes, starts: Longs, sizes: Longs) -> RecordColumns:
    """Columns of stored records at known places. Raises Corrupt that names the first bad one.

    Only the structure is checked; `kernel.verify` checks checksums and positions.
    """
    blob = as_array(buf)
    starts, sizes = as_longs(starts), as_longs(sizes)
    table, bad = kernel.read(blob, starts, sizes)
    if bad >= 0:
        start = int(starts[bad])
        problem = problem_of(blob, start, int(sizes[bad]))
        raise Corrupt(f"record {bad} of {len(sizes)} at byte {start}: {problem}")
    return RecordColumns(blob, table)


def scan(buf: Buffer | Bytes, *, strict: bool = True) -> RecordColumns:
    """Columns of the adjacent records from byte 0, up to a filler, zeros or the end.

    `stop` says why the scan ended and `next_at` where. `strict` raises Corrupt if that is a damaged
    or cut record; otherwise the records before it are returned. Only the structure is checked.
    """
    blob = as_array(buf)
    table, next_at = kernel.scan(blob)
    found = RecordColumns(blob, table)
    found.next_at = next_at
    if next_at < len(blob):
        found.stop = _stop(blob, next_at)
        if strict and found.stop in (ScanStop.CUT, ScanStop.BAD):
            raise Corrupt(f"byte {next_at} of {len(blob)}: {found.stop.value}")
    return found


def _stop(blob: Bytes, at: int) -> ScanStop:
    """What is at `at`, where no whole record begins."""
    if len(blob) - at < _SIZE_MAGIC.size:
        return ScanStop.CUT if blob[at:].any() else ScanStop.ZERO
    size, magic = _SIZE_MAGIC.unpack_from(blob.data, at)
    if magic == MAGIC and max(RECORD_FIXED_BYTES, len(blob) - at + 1) <= size < 2**31:
        return ScanStop.CUT
    if magic == BLANK_MAGIC:
        return ScanStop.BLANK
    return ScanStop.ZERO if size == 0 and magic == 0 else ScanStop.BAD


# -- drafts from clients --------------------------------------------------------------------------


_TEXTS = {
    TRANSACTIONAL: "its flags name a phase of a transaction, which only a broker writes",
    NO_CRC: "the place for its checksum is missing",
    DAMAGED: "its body does not match its checksum (BODYCRC), so it was damaged: send it again",
}


def check_drafts(
    buf: Buffer,
    sizes: Longs | Sequence[int],
    body_size_max: int = BODY_SIZE_BYTES_MAX,
) -> RecordColumns:
    """Check a client's batch: adjacent drafts of these sizes, and nothing else.

    Every length field must agree, every body must match its checksum and not exceed
    `body_size_max`, and the checksum property must have its place. Raises MessageIllegal that names
    the first bad message, counted from 1. `elsewhere` of the result lists the drafts that may be
    delayed or part of a transaction.
    """
    try:
        expected = sizes if isinstance(sizes, array) else array("q", sizes)
    except (OverflowError, ValueError, TypeError) as error:
        raise MessageIllegal("the sizes are not 64-bit integers; nothing was stored") from error
    count = len(expected)
    if not 0 < count <= BATCH_MESSAGES_MAX:
        raise MessageIllegal(f"a batch has 1 to {BATCH_MESSAGES_MAX} messages, not {count}")
    table, moves, problem, bad = kernel.check_drafts(buf, expected, body_size_max)
    if problem == UNTILED:
        raise MessageIllegal("the sizes do not tile the records; nothing was stored")
    if problem:
        blob = as_array(buf)
        start = sum(expected[:bad])
        text = _TEXTS.get(problem) or problem_of(blob, start, expected[bad])
        if problem == TOO_LARGE:
            parts = parts_of(blob.data, start, start + expected[bad])
            size = parts.body_end - parts.body_at
            text = f"its body has {size} bytes; maxMessageSize is {body_size_max}"
        raise MessageIllegal(f"message {bad + 1} of {count}: {text}; nothing was stored")
    found = RecordColumns(buf, table)
    if 1 in moves:
        found.elsewhere = [index for index, moving in enumerate(moves) if moving]
    return found
