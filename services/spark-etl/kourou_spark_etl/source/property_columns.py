"""Extracts properties of many messages at once, as Arrow columns.

Messages of one producer mostly have the same property names in the same order, so a batch is
processed shape by shape: the first unread message defines a shape, and all messages of that shape
are read at once. What is left after a few shapes is read one by one.

Invariant: the result is that of `find_property`, message by message, decoded as there: bytes that
           are not UTF-8 become U+FFFD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kourou.model.limits import CRC_PROPERTY_BYTES
from kourou.protocol.record.columns import Bytes, Longs, Marks, RecordColumns, sliding
from kourou.protocol.record.layout import CRC_MARK
from kourou.protocol.record.properties import find_property

_SHAPES = 8
"""The number of shapes that are read at once; messages of other shapes are read one by one."""

_PROPERTY_END = 2
_NOT_ASCII = 0x80


def gathered(blob: Bytes, at: Longs, length: Longs, kind: pa.DataType) -> pa.Array:
    """The bytes at these positions, as an Arrow array; copied once.

    The positions must ascend and not overlap. They are viewed as an array in which every other
    element is the gap between two of them, so that Arrow's own loop copies the elements. Text must
    be UTF-8, which is not checked here.
    """
    count = len(at)
    if not count:
        return pa.array([], kind)
    edges = np.empty(2 * count, dtype=np.int32)
    edges[0::2] = at
    edges[1::2] = at + length
    every = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(blob)]
    )
    taken = every.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int64)))
    if kind == pa.binary():
        return taken
    return pa.Array.from_buffers(kind, count, [None, *taken.buffers()[1:]])


def texts(array: pa.Array) -> pa.Array:
    """Decode bytes as text: invalid UTF-8 becomes U+FFFD, as in Java."""
    buffers = array.buffers()
    plain = pa.Array.from_buffers(
        pa.string(), len(array), buffers, null_count=array.null_count, offset=array.offset
    )
    if buffers[2] is None or np.frombuffer(buffers[2], np.uint8).max(initial=0) < _NOT_ASCII:
        return plain
    try:
        plain.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(
            [None if raw is None else raw.decode("utf-8", "replace") for raw in array.to_pylist()],
            pa.string(),
        )
    return plain


def lengths_without_checksum(records: RecordColumns) -> Longs:
    """The length of each message's properties, without the record's checksum and a final 0x02."""
    at, length = records.props_at, records.props_len.copy()
    blob = records.blob
    can: Marks = length >= CRC_PROPERTY_BYTES
    places = np.where(can, at + length - CRC_PROPERTY_BYTES, 0)
    if len(blob) >= len(CRC_MARK):
        marks = sliding(blob, f"S{len(CRC_MARK)}")[places]
        length[can & (marks == CRC_MARK)] -= CRC_PROPERTY_BYTES
    ended = (length > 0) & (blob[np.maximum(at + length - 1, 0)] == _PROPERTY_END)
    length[ended] -= 1
    return length


@dataclass(slots=True)
class _Found:
    """The position of one property's value in each message; the end is -1 if a message has none."""

    starts: Longs
    ends: Longs


class PropertyTexts:
    """The properties of a list of records."""

    def __init__(self, records: RecordColumns) -> None:
        self.raw = gathered(
            records.blob, records.props_at, lengths_without_checksum(records), pa.binary()
        )
        buffers = self.raw.buffers()
        self._count = len(self.raw)
        self._data: Bytes = (
            np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
        )
        edges = np.frombuffer(buffers[1], np.int32, self._count + 1).astype(np.int64)
        self._starts, self._ends = edges[:-1], edges[1:]

    @property
    def text(self) -> pa.Array:
        """All properties as text: name 0x01 value, joined by 0x02."""
        return texts(self.raw)

    def values(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """The values of these properties, as text; null if a message has none."""
        wanted = [name.encode() for name in names]
        found = {
            name: _Found(np.zeros(self._count, np.int64), np.full(self._count, -1, np.int64))
            for name in wanted
        }
        left = np.flatnonzero(self._ends > self._starts)
        for _ in range(_SHAPES):
            if not len(left):
                break
            left = self._of_one_shape(left, found)
        for index in left.tolist():
            self._one(index, found)
        return {name.decode(): self._column(found[name]) for name in wanted}

    def _column(self, found: _Found) -> pa.Array:
        has: Marks = found.ends >= 0
        if not has.any():
            return pa.nulls(self._count, pa.string())
        if has.all():
            kept = gathered(self._data, found.starts, found.ends - found.starts, pa.binary())
            return texts(kept)
        # A message without the property gets an empty piece at the previous position, so that
        # positions ascend.
        places = np.maximum.accumulate(np.where(has, found.ends, 0))
        starts = np.where(has, found.starts, places)
        kept = gathered(self._data, starts, np.where(has, found.ends, places) - starts, pa.binary())
        marks = pa.py_buffer(np.packbits(has, bitorder="little"))
        return texts(pa.Array.from_buffers(pa.binary(), self._count, [marks, *kept.buffers()[1:]]))

    # -- messages of one shape --------------------------------------------------------------------

    @cached_property
    def _separators(self) -> Longs:
        return np.flatnonzero(self._data == _PROPERTY_END)

    @cached_property
    def _firsts(self) -> tuple[Longs, Longs]:
        """For each message the index of its first separator, and the number of its separators."""
        separators = self._separators
        each, rest = divmod(len(separators), max(1, self._count))
        if not rest and each:
            rows = separators.reshape(self._count, each)
            if (rows[:, 0] >= self._starts).all() and (rows[:, -1] < self._ends).all():
                first = np.arange(self._count, dtype=np.int64) * each
                return first, np.full(self._count, each, np.int64)
        first = np.searchsorted(separators, self._starts)
        return first, np.searchsorted(separators, self._ends) - first

    def _of_one_shape(self, left: Longs, found: Mapping[bytes, _Found]) -> Longs:
        """Read all messages with the shape of the first unread one. Returns the others."""
        first, counts = self._firsts
        model = int(left[0])
        marks = self._names_of(model)
        if marks is None:
            self._one(model, found)
            return left[1:]
        rows = left[counts[left] == counts[model]]
        edges = self._edges(rows, first[rows], int(counts[model]))
        same = np.ones(len(rows), np.bool_)
        for piece, mark in enumerate(marks):
            same &= self._begins_with(edges[piece], edges[piece + 1] - 1, mark)
        rows, edges = rows[same], edges[:, same]
        for name, place in found.items():
            mark = name + b"\x01"
            if mark in marks:
                piece = marks.index(mark)
                place.starts[rows] = edges[piece] + len(mark)
                place.ends[rows] = edges[piece + 1] - 1
        return np.setdiff1d(left, rows, assume_unique=True)

    def _names_of(self, index: int) -> list[bytes] | None:
        """The names of a message, each with its 0x01; None if a name is missing or occurs twice."""
        pieces = self._data[self._starts[index] : self._ends[index]].tobytes().split(b"\x02")
        marks = [piece[: piece.find(b"\x01") + 1] for piece in pieces]
        plain = all(len(mark) > 1 for mark in marks) and len(set(marks)) == len(marks)
        return marks if plain else None

    def _edges(self, rows: Longs, first: Longs, count: int) -> npt.NDArray[np.int64]:
        """The starts of the pieces; piece p ends before the separator that precedes edge p + 1."""
        edges = np.empty((count + 2, len(rows)), np.int64)
        edges[0] = self._starts[rows]
        for number in range(count):
            edges[number + 1] = self._separators[first + number] + 1
        edges[count + 1] = self._ends[rows] + 1
        return edges

    def _begins_with(self, starts: Longs, ends: Longs, mark: bytes) -> Marks:
        """Which pieces start with a name and its 0x01, and have a value."""
        size = len(mark)
        fits: Marks = ends - starts > size
        # A piece that is too short may be at the very end of the data; then another position is
        # used.
        places = starts if fits.all() else np.where(fits, starts, starts[int(np.argmax(fits))])
        if not fits.any():
            return fits
        rows = sliding(self._data, f"V{size}")[places].view(np.uint8).reshape(len(places), size)
        if rows.tobytes() == mark * len(places):
            return fits
        same: Marks = (rows == np.frombuffer(mark, np.uint8)).all(axis=1)
        return fits & same

    # -- messages one by one ----------------------------------------------------------------------

    def _one(self, index: int, found: Mapping[bytes, _Found]) -> None:
        start = int(self._starts[index])
        text = self._data[start : int(self._ends[index])].tobytes()
        for name, place in found.items():
            value = find_property(text, name)
            if value is None:
                continue
            # The last property with a value is valid, so search from the end.
            mark = name + b"\x01" + value
            at = (b"\x02" + text + b"\x02").rfind(b"\x02" + mark + b"\x02") + len(name) + 1
            place.starts[index] = start + at
            place.ends[index] = start + at + len(value)
