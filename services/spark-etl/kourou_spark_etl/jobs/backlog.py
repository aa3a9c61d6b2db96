"""Consumer lag: its size, its growth, and when it will be consumed."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

SAMPLE_DDL = (
    "consumer_group STRING, topic STRING, at_ms BIGINT, lag BIGINT, end_offsets BIGINT, "
    "consumed_offsets BIGINT"
)
"""A sample of one group and topic at one time: sums over the topic's queues."""


def backlog(samples: DataFrame) -> DataFrame:
    """The samples with rates since the previous sample of the same group and topic.

    Adds in_per_s (messages stored), out_per_s (consumed), growth_per_s (the difference) and
    drain_s: the seconds until the lag is 0 at the current rate; null if it does not shrink, 0 if
    there is no lag. All but drain_s are null for a first sample.
    """
    before = Window.partitionBy("consumer_group", "topic").orderBy("at_ms")
    seconds = (F.col("at_ms") - F.lag("at_ms").over(before)) / 1000
    came = F.col("end_offsets") - F.lag("end_offsets").over(before)
    went = F.col("consumed_offsets") - F.lag("consumed_offsets").over(before)
    rated = samples.select(
        "*",
        F.when(seconds > 0, came / seconds).alias("in_per_s"),
        F.when(seconds > 0, went / seconds).alias("out_per_s"),
    ).withColumn("growth_per_s", F.col("in_per_s") - F.col("out_per_s"))
    shrinks = F.col("growth_per_s") < 0
    drain = F.when(F.col("lag") <= 0, F.lit(0.0)).when(
        shrinks, F.col("lag") / -F.col("growth_per_s")
    )
    return rated.withColumn("drain_s", drain)
