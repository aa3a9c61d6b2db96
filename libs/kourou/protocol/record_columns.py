"""Many records as columns: one numpy array a field, read on demand (fact sheet §4.1).

Lives here: the walk along a run of records and the vectorised form of `record_layout.parts_of`.
May not live here: checksums and stamping (kourou.protocol.record_batch), what is looked for in
topics and properties (kourou.protocol.record_keys).

Nothing loops over records but the chain of sizes in `scan`, and a handful of records, for which a
loop is cheaper. Beyond the structure a field is read when it is first asked for.

Invariants:  every place in `RecordColumns` lies inside its blob, whatever the bytes were
             IPv4, IPv6 and mixed batches give the same columns
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from kourou.errors import Corrupt
from kourou.model.limits import RECORD_FIXED_BYTES, TOPIC_LENGTH_MAX
from kourou.protocol.record_layout import (
    ANY_V6,
    BLANK_MAGIC,
    BORN_V6,
    HEAD_BYTES,
    MAGIC,
    STORE_TIMESTAMP_AT,
    STORE_V6,
    V6_EXTRA_BYTES,
    Buffer,
    Parts,
    parts_of,
)

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Marks = npt.NDArray[np.bool_]

SCALAR_BELOW = 10
"""Fewer records are read one by one: numpy's fixed costs are about 30 µs a batch."""

_SIZE_MAGIC = struct.Struct(">II")
_MAGIC_SIGNED = MAGIC - 2**32
_HEAD_FIELDS = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("position", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared", ">i8"),
        ("body_length", ">i4"),
    ]
)
_TAIL_FIELDS = np.dtype(
    {
        "names": ["reconsume_times", "prepared", "body_length"],
        "formats": [">i4", ">i8", ">i4"],
        "offsets": [16, 20, 28],
        "itemsize": 32,
    }
)
"""From the store time on, as far as IPv6 hosts leave it in one piece."""


def sliding(blob: Bytes, dtype: np.dtype[np.void] | str) -> npt.NDArray[Any]:
    """A view whose element i is the value that begins at byte i: to gather and scatter at once."""
    kind = np.dtype(dtype)
    room = len(blob) - kind.itemsize + 1
    return np.ndarray((max(room, 0),), kind, blob, 0, (1,))


def _gathered(blob: Bytes, fields: np.dtype[np.void], at: Longs) -> npt.NDArray[np.void]:
    """The structures at these places; plain bytes are copied five times as fast as fields."""
    found: npt.NDArray[np.void] = sliding(blob, f"V{fields.itemsize}")[at].view(fields)
    return found


class ScanStop(Enum):
    """Why a walk along records ended."""

    END = "the buffer ends with a record's end"
    CUT = "the next record is not wholly in the buffer"
    BLANK = "a filler closes the segment"
    ZERO = "nothing is written here yet"
    BAD = "what lies here is no record"


class RecordColumns:
    """Fields of many records. `*_at` and `starts` are indexes into `blob`; times are ms.

    `base` is the position of byte 0 of the blob in the log, None where that means nothing. `stop`
    and `next_at` say why and where a walk ended. `elsewhere` are the checked drafts that may have
    to be stored in another topic first (`single_draft.may_go_elsewhere`). Arrays are not to be
    written to.
    """

    __slots__ = (
        "_cache",
        "_head",
        "_parts",
        "_tail",
        "_topics",
        "base",
        "blob",
        "elsewhere",
        "next_at",
        "sizes",
        "starts",
        "stop",
    )

    def __init__(self, blob: Bytes, starts: Longs, sizes: Longs, base: int | None = None) -> None:
        self.blob = blob
        self.starts = starts
        self.sizes = sizes
        self.base = base
        self.stop = ScanStop.END
        self.next_at = len(blob)
        self.elsewhere: Sequence[int] = ()
        self._cache: dict[str, Longs] = {}
        self._parts: list[Parts] | None = None
        self._head: npt.NDArray[np.void] | None = None
        self._tail: npt.NDArray[np.void] | None = None
        self._topics: tuple[list[bytes], Longs | None] | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def _field(self, name: str) -> Longs:
        """The field of this name in `Parts`, for all records."""
        found = self._cache.get(name)
        if found is not None:
            return found
        if self._parts is not None:
            values = [getattr(parts, name) for parts in self._parts]
            found = np.asarray(values, dtype=np.int64)
        else:
            assert self._head is not None, "columns are read before their structure was checked"
            behind_hosts = self._tail is not None and name in _TAIL_FIELDS.fields  # type: ignore[operator]  # it has fields
            source = self._tail if behind_hosts else self._head
            assert source is not None
            found = source[name].astype(np.int64)
        self._cache[name] = found
        return found

    @property
    def body_crcs(self) -> Longs:
        """BODYCRC: checksums of the stored bodies."""
        return self._field("crc")

    @property
    def queue_ids(self) -> Longs:
        """Queue ids."""
        return self._field("queue_id")

    @property
    def flags(self) -> Longs:
        """The applications' own flags."""
        return self._field("flag")

    @property
    def queue_offsets(self) -> Longs:
        """Offsets in their queues."""
        return self._field("queue_offset")

    @property
    def positions(self) -> Longs:
        """Where the records say that they lie in the log."""
        return self._field("position")

    @property
    def sys_flags(self) -> Longs:
        """SYSFLAG bits."""
        return self._field("sys_flag")

    @property
    def born_timestamps(self) -> Longs:
        """When the producers made them, in ms."""
        return self._field("born_timestamp")

    @property
    def store_timestamps(self) -> Longs:
        """When a broker took them, in ms."""
        return self._field("store_timestamp")

    @property
    def reconsume_times(self) -> Longs:
        """How often consumption had failed before."""
        return self._field("reconsume_times")

    @property
    def prepared_offsets(self) -> Longs:
        """PREPARED_TRANSACTION_OFFSET: position of the half message, else 0."""
        return self._field("prepared")

    @property
    def body_at(self) -> Longs:
        """Where the bodies begin."""
        return self._field("body_at")

    @property
    def body_len(self) -> Longs:
        """Bytes of the stored bodies."""
        return self._field("body_end") - self._field("body_at")

    @property
    def topic_at(self) -> Longs:
        """Where the topics begin."""
        return self._field("body_end") + 1

    @property
    def topic_len(self) -> Longs:
        """Bytes of the topics."""
        return self._field("topic_end") - self._field("body_end") - 1

    @property
    def props_at(self) -> Longs:
        """Where the properties begin."""
        return self._field("topic_end") + 2

    @property
    def props_len(self) -> Longs:
        """Bytes of the properties: they go on to the record's end."""
        return self.starts + self.sizes - self._field("topic_end") - 2

    def parts(self) -> list[Parts] | None:
        """The records one by one, where they are so few that they were read one by one."""
        return self._parts

    def record(self, index: int) -> memoryview:
        """The bytes of one record."""
        start = int(self.starts[index])
        return self.blob.data[start : start + int(self.sizes[index])]

    def topic(self, index: int) -> bytes:
        """The topic of one record."""
        at = int(self._field("body_end")[index]) + 1
        return self.blob[at : int(self._field("topic_end")[index])].tobytes()

    def properties(self, index: int) -> bytes:
        """The encoded properties of one record."""
        at = int(self._field("topic_end")[index]) + 2
        return self.blob[at : int(self.starts[index]) + int(self.sizes[index])].tobytes()

    def property_texts(self) -> list[bytes]:
        """The encoded properties of all records."""
        view = self.blob.data
        begins, ends = self.props_at.tolist(), (self.starts + self.sizes).tolist()
        return [bytes(view[at:end]) for at, end in zip(begins, ends, strict=True)]

    def stamped(
        self, blob: Buffer, queue_offsets: Longs, positions: Longs, store_timestamp: int
    ) -> RecordColumns:
        """These drafts, as they lie in `blob` now that they have their places.

        With the fields that a projection reads, and no others.
        """
        found = RecordColumns(as_array(blob), self.starts, self.sizes)
        names = ("queue_id", "sys_flag", "body_end", "topic_end")
        found._cache = {name: self._field(name) for name in names}
        found._topics = self._topics
        found._cache["queue_offset"] = queue_offsets
        found._cache["position"] = positions
        found._cache["store_timestamp"] = np.full(len(self), store_timestamp, dtype=np.int64)
        return found

    def select(self, which: npt.NDArray[np.intp] | Marks | slice) -> RecordColumns:
        """The records chosen by indexes, marks or a slice, over the same blob."""
        chosen = RecordColumns(self.blob, self.starts[which], self.sizes[which], self.base)
        chosen._cache = {name: values[which] for name, values in self._cache.items()}
        if self._parts is not None:
            kept = np.arange(len(self))[which].tolist()
            chosen._parts = [self._parts[index] for index in kept]
        if self._head is not None:
            chosen._head = self._head[which]
            chosen._tail = None if self._tail is None else self._tail[which]
        return chosen


# -- structure ------------------------------------------------------------------------------------


def parsed(found: RecordColumns) -> tuple[int, str] | None:
    """Check the structure of all records; None if it holds, else index and problem of the first.

    The caller has made sure that starts and sizes lie inside the blob. Only after this returned
    None may the columns be read.
    """
    if len(found) < SCALAR_BELOW:
        return _read_few(found)
    if int(found.sizes.min()) < RECORD_FIXED_BYTES:
        index = int(np.argmax(found.sizes < RECORD_FIXED_BYTES))
        # What lies before the short one may be wrong too, and the first problem is to be named.
        earlier = parsed(found.select(slice(0, index))) if index else None
        return earlier or (index, f"size: {int(found.sizes[index])} bytes are too few for a record")
    return _read_many(found)


def _read_few(found: RecordColumns) -> tuple[int, str] | None:
    view = found.blob.data
    read: list[Parts] = []
    for index, (start, size) in enumerate(
        zip(found.starts.tolist(), found.sizes.tolist(), strict=True)
    ):
        try:
            parts = parts_of(view, start, start + size)
        except Corrupt as error:
            return index, error.message
        if parts.size != size:
            return index, f"size: {parts.size} is told, {size} bytes are there"
        read.append(parts)
    found._parts = read
    return None


def _read_many(found: RecordColumns) -> tuple[int, str] | None:
    """Gather the fixed parts and check all lengths.

    A place that was computed from a bad length is pulled back into its record before it is used, so
    whatever the bytes are, nothing outside a record is read.
    """
    blob, starts, sizes = found.blob, found.starts, found.sizes
    head = _gathered(blob, _HEAD_FIELDS, starts)
    tail: npt.NDArray[np.void] | None = None
    sys_flags = head["sys_flag"].astype(np.int64)
    bad = (head["size"] != sizes) | (head["magic"] != _MAGIC_SIGNED)
    spare = sizes - RECORD_FIXED_BYTES
    if np.bitwise_or.reduce(sys_flags) & ANY_V6:
        extra = _extra(sys_flags)
        too_short = extra > spare
        bad |= too_short
        extra[too_short] = 0
        tail = _gathered(blob, _TAIL_FIELDS, starts + (STORE_TIMESTAMP_AT + extra))
        body_len = tail["body_length"].astype(np.int64)
        body_at = starts + (HEAD_BYTES + extra)
        spare -= extra
    else:
        body_len = head["body_length"].astype(np.int64)
        body_at = starts + HEAD_BYTES
    wrong = (body_len < 0) | (body_len > spare)
    if wrong.any():
        bad |= wrong
        body_len[wrong] = 0
    body_end = body_at + body_len
    spare -= body_len
    topic_len = blob[body_end].astype(np.int64)
    wrong = (topic_len > np.minimum(spare, TOPIC_LENGTH_MAX)) | (topic_len == 0)
    if wrong.any():
        bad |= wrong
        topic_len[wrong] = 0
    topic_end = body_end + topic_len + 1
    props_len = sliding(blob, ">i2")[topic_end]
    bad |= props_len != spare - topic_len
    if bad.any():
        return _problem_of_first(blob, starts, sizes, bad)
    found._head, found._tail = head, tail
    found._cache.update(sys_flag=sys_flags, body_at=body_at, body_end=body_end, topic_end=topic_end)
    if tail is not None:
        at = starts + _born_extra(sys_flags) + STORE_TIMESTAMP_AT
        found._cache["store_timestamp"] = sliding(blob, ">i8")[at].astype(np.int64)
    return None


def _problem_of_first(blob: Bytes, starts: Longs, sizes: Longs, bad: Marks) -> tuple[int, str]:
    """What the scalar walk says of the first bad record, so that both name it alike."""
    index = int(np.argmax(bad))
    one = RecordColumns(blob, starts[index : index + 1], sizes[index : index + 1])
    problem = _read_few(one)
    assert problem is not None, "the columns and the walk disagree"
    return index, problem[1]


def _extra(sys_flags: Longs) -> Longs:
    """By how many bytes IPv6 hosts move what follows them."""
    return _born_extra(sys_flags) + np.where(sys_flags & STORE_V6, np.int64(V6_EXTRA_BYTES), 0)


def _born_extra(sys_flags: Longs) -> Longs:
    return np.where(sys_flags & BORN_V6, np.int64(V6_EXTRA_BYTES), 0)


def store_places(found: RecordColumns) -> Longs:
    """Where each record keeps its store time; its store host follows."""
    return found.starts + _born_extra(found.sys_flags) + STORE_TIMESTAMP_AT


def as_array(buf: Buffer | Bytes) -> Bytes:
    """The buffer as bytes of numpy, not copied."""
    return buf if isinstance(buf, np.ndarray) else np.frombuffer(buf, dtype=np.uint8)


def columns(
    buf: Buffer | Bytes, starts: Longs, sizes: Longs, base_position: int | None = None
) -> RecordColumns:
    """Columns of stored records at known places; raises Corrupt naming the first bad one.

    Only the structure is checked; `verify_batch` checks checksums and positions.
    """
    blob = as_array(buf)
    outside = (starts < 0) | (sizes < 0) | (starts + sizes > len(blob))
    if outside.any():
        index = int(np.argmax(outside))
        raise Corrupt(f"record {index} of {len(sizes)}: it lies outside the bytes given")
    found = RecordColumns(blob, starts, sizes, base_position)
    problem = parsed(found)
    if problem is not None:
        index, text = problem
        raise Corrupt(f"record {index} of {len(sizes)} at byte {int(starts[index])}: {text}")
    return found


def scan(
    buf: Buffer | Bytes,
    base_position: int | None = None,
    starts: Sequence[int] | Longs | None = None,
    *,
    strict: bool = True,
) -> RecordColumns:
    """Columns of the records that lie back to back from byte 0, up to a filler, zeros or the end.

    `stop` says why the walk ended and `next_at` where. `strict` raises Corrupt if that is a damaged
    or cut record; otherwise the records before it are returned. With `starts` the records at those
    places are read instead. Only the structure is checked.
    """
    blob = as_array(buf)
    if starts is not None:
        at = np.asarray(starts, dtype=np.int64)
        if len(at) and (int(at.min()) < 0 or int(at.max()) > len(blob) - 4):
            raise Corrupt("a record lies outside the bytes given")
        return columns(blob, at, sliding(blob, ">i4")[at].astype(np.int64), base_position)
    view = blob.data
    sizes: list[int] = []
    take = sizes.append
    unpack = _SIZE_MAGIC.unpack_from
    place, end = 0, len(blob)
    last = end - _SIZE_MAGIC.size
    stop = ScanStop.END
    while place <= last:
        size, magic = unpack(view, place)
        if magic != MAGIC or size < RECORD_FIXED_BYTES or place + size > end:
            stop = _stop(size, magic)
            break
        take(size)
        place += size
    else:
        if place < end:
            stop = ScanStop.CUT if view[place:end].tobytes().strip(b"\0") else ScanStop.ZERO
    found = _scanned(blob, np.asarray(sizes, dtype=np.int64), base_position, stop, place)
    if strict and found.stop in (ScanStop.CUT, ScanStop.BAD):
        raise Corrupt(f"byte {found.next_at} of {end}: {found.stop.value}")
    return found


def _stop(size: int, magic: int) -> ScanStop:
    if magic == MAGIC and RECORD_FIXED_BYTES <= size < 2**31:
        return ScanStop.CUT
    if magic == BLANK_MAGIC:
        return ScanStop.BLANK
    return ScanStop.ZERO if size == 0 and magic == 0 else ScanStop.BAD


def _scanned(
    blob: Bytes, sizes: Longs, base: int | None, stop: ScanStop, next_at: int
) -> RecordColumns:
    starts = np.cumsum(sizes) - sizes
    found = RecordColumns(blob, starts, sizes, base)
    problem = parsed(found)
    while problem is not None:
        first_bad = problem[0]
        stop, next_at = ScanStop.BAD, int(starts[first_bad])
        found = RecordColumns(blob, starts[:first_bad], sizes[:first_bad], base)
        problem = parsed(found)
    found.stop, found.next_at = stop, next_at
    return found
