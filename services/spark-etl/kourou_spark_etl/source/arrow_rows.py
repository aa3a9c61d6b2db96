"""Converts stored records to Arrow record batches, without a loop over the rows.

Common cases are converted for all rows at once. Only special rows are converted one by one:
compressed bodies, messages without a producer's ID, properties of unusual shapes.

Invariant: a row equals the `ReceivedMessage` of the same record; `topic` is that of the queue, and
           `reconsume_times` the stored value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kourou.errors import Corrupt
from kourou.model.message import Property, SysFlag
from kourou.model.topic import MessageQueue
from kourou.protocol.record.columns import Longs, RecordColumns
from kourou.protocol.record.compression import decompress
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import decode_record
from kourou_spark_etl.source.columns import COLUMNS, arrow_schema
from kourou_spark_etl.source.property_columns import PropertyTexts, gathered

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
        return gathered(records.blob, records.body_at, records.body_len, pa.binary())
    at, length = records.body_at, records.body_len
    bodies: list[pa.Array] = []
    done = 0
    for index in packed.tolist():
        if index > done:
            some = slice(done, index)
            bodies.append(gathered(records.blob, at[some], length[some], pa.binary()))
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
        bodies.append(gathered(records.blob, at[done:], length[done:], pa.binary()))
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
