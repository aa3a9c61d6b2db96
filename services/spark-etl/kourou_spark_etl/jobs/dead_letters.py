"""Dead letters: their number by group, reason and original topic."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kourou.model.limits import READ_MODEL_TEXT_LENGTH_MAX
from kourou.model.message import Property
from kourou.model.names import DLQ_PREFIX
from kourou_spark_etl.source.property_text import property_value

COLUMNS = ("topic", "timestamp", "properties")
"""The columns of messages that are read."""


def dead_letters(messages: DataFrame) -> DataFrame:
    """consumer_group, reason, origin_topic | letters, first_ms, last_ms (stored, epoch ms).

    A missing text is empty: RocketMQ's brokers set no reason. Messages that are not dead letters
    are ignored.
    """

    def text(name: str) -> Column:
        value = F.coalesce(property_value("properties", name), F.lit(""))
        return F.substring(value, 1, READ_MODEL_TEXT_LENGTH_MAX)

    stored_ms = F.unix_millis("timestamp")
    origin = F.when(text(Property.DLQ_ORIGIN_TOPIC) != "", text(Property.DLQ_ORIGIN_TOPIC))
    return (
        messages.where(F.col("topic").startswith(DLQ_PREFIX))
        .select(
            F.col("topic")
            .substr(F.lit(len(DLQ_PREFIX) + 1), F.length("topic"))
            .alias("consumer_group"),
            text(Property.DLQ_REASON).alias("reason"),
            F.coalesce(origin, text(Property.RETRY_TOPIC)).alias("origin_topic"),
            stored_ms.alias("stored_ms"),
        )
        .groupBy("consumer_group", "reason", "origin_topic")
        .agg(
            F.count("*").alias("letters"),
            F.min("stored_ms").alias("first_ms"),
            F.max("stored_ms").alias("last_ms"),
        )
    )
