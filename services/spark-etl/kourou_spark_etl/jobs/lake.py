"""The lake: every message as a row of Parquet, in folders by topic and day."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PARTITIONS = ("topic", "date")
"""The names of the folders, outermost first. The files do not have these columns."""


def lake(messages: DataFrame) -> DataFrame:
    """All columns of the messages, and the UTC day on which each was stored."""
    return messages.withColumn("date", F.to_date("timestamp"))
