"""The data pipeline: every topic is a table, on Spark.

from kourou_spark_etl import register
register(spark)
spark.read.format("kourou").option("subscribe", "orders").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Let a session know `format("kourou")`; any number of times."""
    # Spark is an extra: what needs none of it, such as reading a job file, must not load it.
    from kourou_spark_etl.data_source import register as register_source

    register_source(spark)
