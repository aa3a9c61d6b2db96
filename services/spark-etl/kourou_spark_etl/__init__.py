"""The data pipeline on Spark: every topic is a table.

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
    """Register `format("kourou")` with a session; repeated calls are harmless."""
    # Spark is optional: code that does not need it, such as reading a job file, must not import it.
    from kourou_spark_etl.data_source import register as register_source

    register_source(spark)
