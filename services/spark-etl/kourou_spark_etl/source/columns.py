"""The columns of a message as a row.

Spark does not tell a source in Python which columns a query needs. A schema with fewer columns
does: columns that it does not name are not created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from kourou.errors import BadRequest

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
