"""The latency of messages: from the producer's call to the end of the consumer's handler.

    born ---- store ----> stored ---- wait ----> handler starts --- handle ---> handler ends
      '---- send: the whole call, as measured by the producer

`store` is computed from the messages; the other stages from message traces (RMQ_SYS_TRACE_TOPIC),
which clients send if tracing is enabled. A trace of a consumption does not have the topic, so it is
joined with its message, within the time of the option `wait`.

The clocks of machines differ, so negative durations are set to 0.

State: none; in a stream, the join's state is Spark's.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kourou.model.names import TRACE_TOPIC
from kourou.protocol.record.message_trace import FIELD, NULL, RECORD
from kourou_spark_etl.buckets import BASE

COLUMNS = ("topic", "timestamp", "born_time", "message_id", "value", "offset")
"""The columns of messages that are read."""

STAGES = ("send", "store", "wait", "handle")

TRACED = "told"
"""The column with a trace's own time; the state in checkpoints has this name."""


def latency(messages: DataFrame, *, wait: str) -> DataFrame:
    """Samples: stage, topic, consumer_group, at (when the stage ended), ms.

    `messages` are those of the analysed topics and of the trace topic. consumer_group is empty for
    `store`, and the producer's group for `send`. `wait` is a duration like `10 minutes`.
    """
    stored = messages.where(F.col("topic") != TRACE_TOPIC)
    traces = trace_fields(messages.where(F.col("topic") == TRACE_TOPIC))
    return _store(stored).unionByName(_send(traces)).unionByName(_consume(stored, traces, wait))


def trace_fields(traces: DataFrame) -> DataFrame:
    """One row for each record of a trace: `f`, its fields as texts (the first is its kind)."""
    records = F.split(F.make_valid_utf8(F.col("value").cast("string")), RECORD)
    return traces.select(
        F.explode(F.filter(records, lambda text: text != "")).alias("record"),
        F.col("timestamp").alias(TRACED),
    ).select(F.split("record", FIELD).alias("f"), TRACED)


def _field(place: int) -> Column:
    value = F.get("f", F.lit(place))
    return F.when(value == NULL, F.lit("")).otherwise(value)


def _number(place: int) -> Column:
    # A value that is not a number belongs to a record of another program, which is ignored.
    return F.expr(f"try_cast(get(f, {place}) AS BIGINT)")


def _store(stored: DataFrame) -> DataFrame:
    ms = F.unix_millis("timestamp") - F.unix_millis("born_time")
    return _sample(stored, "store", F.col("topic"), F.lit(""), F.col("timestamp"), ms)


def _send(traces: DataFrame) -> DataFrame:
    sent = traces.where((_field(0) == "Pub") & (F.size("f") >= 12) & _number(10).isNotNull())
    at = F.timestamp_millis(_number(1))
    return _sample(sent, "send", _field(4), _field(3), at, _number(10))


def _consume(stored: DataFrame, traces: DataFrame, wait: str) -> DataFrame:
    """`wait` and `handle`: joins each consumption with its message."""
    messages = stored.select(
        F.col("message_id").alias("id"), "topic", F.col("timestamp").alias("stored")
    ).withWatermark("stored", wait)
    before = (_field(0) == "SubBefore") & (F.size("f") >= 8) & _number(1).isNotNull()
    after = (_field(0) == "SubAfter") & (F.size("f") >= 6) & _number(3).isNotNull()
    # Old clients do not send the group with the end; such records cannot be counted.
    after = after & (F.coalesce(_field(8), F.lit("")) != "")
    is_end = _field(0) == "SubAfter"
    told = (
        traces.where(before | after)
        .select(
            F.when(is_end, F.lit("handle")).otherwise(F.lit("wait")).alias("stage"),
            F.when(is_end, _field(2)).otherwise(_field(5)).alias("traced_id"),
            F.when(is_end, _field(8)).otherwise(_field(3)).alias("consumer_group"),
            F.when(is_end, _number(7)).otherwise(_number(1)).alias("at_ms"),
            F.when(is_end, _number(3)).alias("cost_ms"),
            TRACED,
        )
        .withWatermark(TRACED, wait)
    )
    both = messages.join(
        told,
        F.expr(
            f"id = traced_id AND {TRACED} >= stored - INTERVAL {wait} "
            f"AND {TRACED} <= stored + INTERVAL {wait}"
        ),
    )
    ms = F.coalesce("cost_ms", F.col("at_ms") - F.unix_millis("stored"))
    at = F.timestamp_millis("at_ms")
    return _sample(both, F.col("stage"), F.col("topic"), F.col("consumer_group"), at, ms)


def _sample(
    rows: DataFrame, stage: Column | str, topic: Column, group: Column, at: Column, ms: Column
) -> DataFrame:
    return rows.select(
        (F.lit(stage) if isinstance(stage, str) else stage).alias("stage"),
        topic.alias("topic"),
        group.alias("consumer_group"),
        at.alias("at"),
        F.greatest(ms, F.lit(0)).alias("ms"),
    )


def by_size(samples: DataFrame, *, window_ms: int) -> DataFrame:
    """Counts: window_ms, stage, topic, consumer_group, bucket | samples, sum_ms, max_ms.

    For one batch of a stream, or for a table; `bucket` as defined in kourou_spark_etl.buckets.
    """
    start = F.floor(F.unix_millis("at") / window_ms) * window_ms
    bucket = F.when(F.col("ms") <= 0, F.lit(0)).otherwise(
        F.ceil(F.log(F.col("ms").cast("double")) / F.log(F.lit(BASE)) - 1e-9) + 1
    )
    return (
        samples.where(F.col("at").isNotNull())
        .select(
            start.cast("bigint").alias("window_ms"),
            "stage",
            "topic",
            "consumer_group",
            bucket.cast("int").alias("bucket"),
            "ms",
        )
        .groupBy("window_ms", "stage", "topic", "consumer_group", "bucket")
        .agg(
            F.count("*").alias("samples"),
            F.sum("ms").alias("sum_ms"),
            F.max("ms").alias("max_ms"),
        )
    )
