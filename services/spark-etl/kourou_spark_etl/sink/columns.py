"""The columns of a write, and the meaning of their values.

value        STRING or BINARY   the body; required in every row
topic        STRING             overrides the option; null: the option
key          STRING             business keys, separated by spaces
tags         STRING             the tag
properties   MAP<STRING,STRING> application properties
order_key    STRING             rows with the same order key go to the same queue
queue        INT                the index of a queue, among those of the topic in their order
delay_level  INT                delayed delivery, by level
delay_ms     BIGINT             delayed delivery, by the duration of a level
trace_parent STRING             W3C trace context
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from kourou.errors import BadRequest
from kourou_spark_etl.sink.options import QueueBy, WriteOptions

_TEXT = (StringType,)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
COLUMNS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": ((BinaryType, StringType), "BINARY or STRING"),
    "topic": (_TEXT, "STRING"),
    "key": (_TEXT, "STRING"),
    "tags": (_TEXT, "STRING"),
    "properties": ((MapType,), "MAP<STRING,STRING>"),
    "order_key": (_TEXT, "STRING"),
    "queue": (_WHOLE, "INT"),
    "delay_level": (_WHOLE, "INT"),
    "delay_ms": (_WHOLE, "BIGINT"),
    "trace_parent": (_TEXT, "STRING"),
}
_EXCLUDE = (("order_key", "queue"), ("delay_level", "delay_ms"))


class OutRow(NamedTuple):
    """One row; None for a column without a value."""

    value: bytes | None
    topic: str | None = None
    key: str | None = None
    tags: str | None = None
    properties: list[tuple[str, str | None]] | None = None
    order_key: str | None = None
    queue: int | None = None
    delay_level: int | None = None
    delay_ms: int | None = None
    trace_parent: str | None = None


def check_columns(schema: StructType, options: WriteOptions) -> tuple[str, ...]:
    """The columns in their order. Raises BadRequest if one is unknown, invalid or missing."""
    names = tuple(schema.fieldNames())
    for field in schema.fields:
        kinds, meant = COLUMNS.get(field.name, ((), ""))
        if not kinds:
            raise BadRequest(
                f"column {field.name!r} is unknown",
                hint=f"writing supports {', '.join(COLUMNS)}; select and rename before writing",
            )
        if not isinstance(field.dataType, kinds) or not _texts_inside(field.dataType):
            hint = (
                "property_map converts the text of the source" if field.name == "properties" else ""
            )
            raise BadRequest(
                f"column {field.name!r} has type {field.dataType.simpleString()}, not {meant}",
                hint=hint,
            )
    if len(set(names)) < len(names):
        raise BadRequest(f"a column is present twice: {', '.join(names)}")
    if "value" not in names:
        raise BadRequest("column 'value' is missing", hint="it is the body of each message")
    if "topic" not in names and not options.topic:
        raise BadRequest(
            "no topic is given", hint="set the option 'topic', or add a column 'topic'"
        )
    for one, other in _EXCLUDE:
        if one in names and other in names:
            raise BadRequest(f"columns {one!r} and {other!r} exclude each other")
    if options.queue_by is QueueBy.KEY and "key" not in names:
        raise BadRequest("the option 'queueBy' is 'key', but there is no column 'key'")
    return names


def _texts_inside(kind: DataType) -> bool:
    if not isinstance(kind, MapType):
        return True
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


def rows_of(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[OutRow]:
    """The rows of an Arrow batch, whose columns are in the order of `columns`."""
    lists: dict[str, list[Any]] = {}
    for name, column in zip(columns, batch.columns, strict=True):
        if name == "value" and not pa.types.is_binary(column.type):
            column = column.cast(pa.binary())
        lists[name] = column.to_pylist()
    nothing: list[Any] = [None] * batch.num_rows
    return map(OutRow, *(lists.get(name, nothing) for name in OutRow._fields))
