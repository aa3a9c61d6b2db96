"""Converts stored records to Arrow record batches, without a loop over the rows.

Common cases are converted for all rows at once. Only special rows are converted one by one:
compressed bodies, messages without a producer's ID, properties of unusual shapes.

Columns: Spark does not tell a source in Python which columns a query needs. A schema with fewer
columns does: columns that it does not name are not created.

Properties: messages of one producer mostly have the same property names in the same order, so a
batch is processed shape by shape: the first unread message defines a shape, and all messages of
that shape are read at once. What is left after a few shapes is read one by one.

Invariants:  a row equals the `ReceivedMessage` of the same record; `topic` is that of the queue,
             and `reconsume_times` the stored value
             properties are those of `find_property`, message by message, decoded as there: bytes
             that are not UTF-8 become U+FFFD
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kourou.errors import BadRequest, Corrupt
from kourou.model.limits import CRC_PROPERTY_BYTES
from kourou.model.message import Property, SysFlag
from kourou.model.topic import MessageQueue
from kourou.protocol.record.columns import Bytes, Longs, Marks, RecordColumns, sliding
from kourou.protocol.record.compression import decompress
from kourou.protocol.record.layout import CRC_MARK
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.record.properties import find_property

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TIME = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, tuple[str, pa.DataType]] = {
    "key": ("string", pa.string()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "broker": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", _TIME),
    "tags": ("string", pa.string()),
    "properties": ("string", pa.string()),
    "position": ("bigint", pa.int64()),
    "born_time": ("timestamp", _TIME),
    "message_id": ("string", pa.string()),
    "reconsume_times": ("int", pa.int32()),
    "trace_parent": ("string", pa.string()),
}

COLUMNS: tuple[str, ...] = tuple(_TYPES)
"""All columns, in order."""

SCHEMA_DDL = ", ".join(f"{name} {kind.upper()}" for name, (kind, _) in _TYPES.items())
"""The default schema of a read."""


def arrow_schema(names: Sequence[str] = COLUMNS) -> pa.Schema:
    """The exact schema of Arrow batches with these columns."""
    return pa.schema([(name, _TYPES[name][1]) for name in names])


def wanted_columns(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema selects. Raises BadRequest, which names an unknown one."""
    for field in schema.fields:
        known = _TYPES.get(field.name)
        if known is None:
            raise BadRequest(
                f"the schema has the column {field.name!r}, which messages do not have",
                hint=f"messages have {', '.join(COLUMNS)}",
            )
        if field.dataType.simpleString() != known[0]:
            raise BadRequest(
                f"column {field.name} has type {field.dataType.simpleString()} in the "
                f"schema; it must be {known[0]}"
            )
    if not schema.fields:
        raise BadRequest("the schema has no column", hint=f"messages have {', '.join(COLUMNS)}")
    return tuple(field.name for field in schema.fields)


_SHAPES = 8
"""The number of shapes that are read at once; messages of other shapes are read one by one."""

_PROPERTY_END = 2
_NOT_ASCII = 0x80


def gathered(blob: Bytes, at: Longs, length: Longs) -> pa.Array:
    """The bytes at these positions, as an Arrow array of binaries; copied once.

    The positions must ascend and not overlap. They are viewed as an array in which every other
    element is the gap between two of them, so that Arrow's own loop copies the elements.
    """
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    edges = np.empty(2 * count, dtype=np.int32)
    edges[0::2] = at
    edges[1::2] = at + length
    every = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(blob)]
    )
    return every.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int64)))


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
        self.raw = gathered(records.blob, records.props_at, lengths_without_checksum(records))
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
            kept = gathered(self._data, found.starts, found.ends - found.starts)
            return texts(kept)
        # A message without the property gets an empty piece at the previous position, so that
        # positions ascend.
        places = np.maximum.accumulate(np.where(has, found.ends, 0))
        starts = np.where(has, found.starts, places)
        kept = gathered(self._data, starts, np.where(has, found.ends, places) - starts)
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


_US_PER_MS = 1_000
_OF_PROPERTIES = {
    "key": (Property.KEYS.value,),
    "tags": (Property.TAGS.value,),
    "message_id": (Property.UNIQ_KEY.value,),
    "trace_parent": (Property.TRACEPARENT.value, Property.TRACE_CONTEXT.value),
}
"""The properties that a column is read from; the first existing one is used."""


class ArrowRows:
    """Converts records to rows. `names` are the selected columns, in their order.

    With `tags`, messages with other tags are left out: brokers compare hash codes, which two tags
    may share.
    """

    def __init__(self, names: Sequence[str] = COLUMNS, tags: frozenset[str] = frozenset()) -> None:
        self._names = tuple(names)
        self._tags = pa.array(sorted(tags), pa.string()) if tags else None
        self._schema = arrow_schema(names)
        read = [*names, "tags"] if tags else names
        self._properties = tuple(
            dict.fromkeys(name for column in read for name in _OF_PROPERTIES.get(column, ()))
        )

    def batch(self, queue: MessageQueue, records: RecordColumns) -> pa.RecordBatch:
        """The rows of records of one queue. Raises Corrupt if a body cannot be decompressed."""
        properties: PropertyTexts | None = None
        values: dict[str, pa.Array] = {}
        if self._properties or "properties" in self._names:
            properties = PropertyTexts(records)
            values = properties.values(self._properties)
        columns: list[pa.Array] = []
        for name in self._names:
            if name in _OF_PROPERTIES:
                column = values[_OF_PROPERTIES[name][0]]
                for other in _OF_PROPERTIES[name][1:]:
                    column = _first_of(column, values[other])
                if name == "message_id" and column.null_count:
                    column = _with_offset_ids(column, records)
            elif name == "properties":
                assert properties is not None
                column = properties.text
            else:
                column = _PLAIN[name](queue, records)
            columns.append(column)
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if self._tags is None:
            return batch
        meant = pc.is_in(values[Property.TAGS.value], value_set=self._tags)
        return batch if pc.all(meant).as_py() else batch.filter(meant)


def _first_of(one: pa.Array, other: pa.Array) -> pa.Array:
    if not one.null_count or other.null_count == len(other):
        return one
    if one.null_count == len(one):
        return other
    return pc.coalesce(one, other)


def _with_offset_ids(column: pa.Array, records: RecordColumns) -> pa.Array:
    """Use the position as the ID of messages whose producer set none, as consumers do."""
    ids: list[str | None] = column.to_pylist()
    view = records.blob.data
    for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
        stored = decode_record(view, int(records.starts[index]), verify=False, decompress=False)
        ids[index] = encode_offset_id(stored.store_host, stored.position)
    return pa.array(ids, pa.string())


def _values(queue: MessageQueue, records: RecordColumns) -> pa.Array:
    packed = np.flatnonzero(records.sys_flags & int(SysFlag.COMPRESSED))
    if not len(packed):
        return gathered(records.blob, records.body_at, records.body_len)
    at, length = records.body_at, records.body_len
    bodies: list[pa.Array] = []
    done = 0
    for index in packed.tolist():
        if index > done:
            some = slice(done, index)
            bodies.append(gathered(records.blob, at[some], length[some]))
        start = int(at[index])
        stored = records.blob[start : start + int(length[index])].tobytes()
        try:
            body = decompress(int(records.sys_flags[index]), stored)
        except Corrupt as error:
            place = f"{queue!s}@{int(records.queue_offsets[index])}"
            raise Corrupt(f"{place}: {error.message}", hint=error.hint) from error
        bodies.append(pa.array([body], pa.binary()))
        done = index + 1
    if done < len(records):
        bodies.append(gathered(records.blob, at[done:], length[done:]))
    return pa.concat_arrays(bodies)


def _same(text: str, count: int) -> pa.Array:
    """One text for every row."""
    raw = text.encode()
    edges = np.arange(count + 1, dtype=np.int32) * len(raw)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(edges), pa.py_buffer(raw * count)]
    )


def _times(milliseconds: Longs) -> pa.Array:
    return pa.array(milliseconds * _US_PER_MS, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _ints(values: Longs) -> pa.Array:
    return pa.array(values.astype(np.int32), pa.int32())


_PLAIN: dict[str, Callable[[MessageQueue, RecordColumns], pa.Array]] = {
    "value": _values,
    "topic": lambda queue, records: _same(queue.topic, len(records)),
    "broker": lambda queue, records: _same(queue.broker_name, len(records)),
    "partition": lambda queue, records: _ints(np.full(len(records), queue.queue_id, np.int64)),
    "offset": lambda queue, records: pa.array(records.queue_offsets, pa.int64()),
    "timestamp": lambda queue, records: _times(records.store_timestamps),
    "position": lambda queue, records: pa.array(records.positions, pa.int64()),
    "born_time": lambda queue, records: _times(records.born_timestamps),
    "reconsume_times": lambda queue, records: _ints(records.reconsume_times),
}
"""The columns that are fields of the record, or the same for all records."""
