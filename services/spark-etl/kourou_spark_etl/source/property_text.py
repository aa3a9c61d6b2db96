"""Functions for queries that extract values from the column `properties`.

The column is text, because a map would cost Spark a copy of every name and value of every row, and
most queries read one property or none (docs/decisions/0064-a-source-in-python.md).
"""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql import functions as F

from kourou.errors import BadRequest

NAME_END = "\x01"
PROPERTY_END = "\x02"


def property_value(properties: Column | str, name: str) -> Column:
    """The value of one property; null if there is none. If it occurs twice, the last one."""
    if not name or NAME_END in name or PROPERTY_END in name:
        raise BadRequest(f"{name!r} is not a valid property name")
    text = F.col(properties) if isinstance(properties, str) else properties
    pattern = f"(?s).*{PROPERTY_END}{_quoted(name)}{NAME_END}([^{PROPERTY_END}]+)"
    found = F.regexp_extract(F.concat(F.lit(PROPERTY_END), text), pattern, 1)
    return F.when(found != "", found)


def property_map(properties: Column | str) -> Column:
    """All properties as a map of text to text.

    Spark rejects duplicate names unless `spark.sql.mapKeyDedupPolicy` is LAST_WIN, which
    `open_session` sets. It corresponds to what brokers do.
    """
    text = F.col(properties) if isinstance(properties, str) else properties
    return F.when(text == "", F.create_map().cast("map<string,string>")).otherwise(
        F.str_to_map(text, F.lit(PROPERTY_END), F.lit(NAME_END))
    )


def _quoted(name: str) -> str:
    """A name quoted for a Java regular expression."""
    return re.sub(r"([^A-Za-z0-9_-])", r"\\\1", name)
