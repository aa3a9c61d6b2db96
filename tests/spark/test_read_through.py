"""Who measures reading is told how many rows there were, and no column is left out."""

from __future__ import annotations

from typing import Any

import pytest

from kourou_spark_etl.session import read_through


def test_every_row_is_counted(spark: Any) -> None:
    assert read_through(spark.range(1_000, numPartitions=3)) == 1_000
    assert read_through(spark.range(0)) == 0


def test_every_column_is_read(spark: Any) -> None:
    """A count alone would look at no column, and find nothing wrong with this one."""
    frame = spark.range(10).selectExpr("id", "raise_error('looked at') AS wrong")
    assert frame.count() == 10
    with pytest.raises(Exception, match="looked at"):
        read_through(frame)
