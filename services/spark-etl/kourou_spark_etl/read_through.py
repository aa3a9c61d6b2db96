"""Reads a whole frame and discards the rows, for benchmarks."""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation
from pyspark.sql.functions import count, lit


def read_through(frame: DataFrame) -> int:
    """Read every column of every row. Returns the number of rows."""
    seen = Observation()
    told = frame.observe(seen, count(lit(1)).alias("rows"))
    told.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])
