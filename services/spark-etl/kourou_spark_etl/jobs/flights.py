"""The demo's flights: delays by carrier, route and hour, in windows of event time.

A flight belongs to the window of its scheduled departure, whenever its message arrives, up to the
watermark. Later messages are dropped, and Spark counts them.

State: none; in a stream, open windows are Spark's state.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

COLUMNS = ("value",)
"""The columns of messages that are read."""

FLIGHT_DDL = (
    "row BIGINT, time TIMESTAMP, date STRING, carrier STRING, flight INT, origin STRING, "
    "dest STRING, distance_miles INT, tail STRING, departure_delay INT, arrival_delay INT, "
    "air_time INT"
)
LATE_MIN = 15
"""A flight that arrives more than 15 minutes late counts as late in the airlines' statistics."""

SUMS = (
    "flights",
    "cancelled",
    "departed",
    "arrived",
    "late",
    "departure_delay_min",
    "arrival_delay_min",
    "seats",
    "in_rain",
)
"""The aggregates of a window, all of them sums of integers."""


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
    """window_ms, dimension, name | label and SUMS.

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
    seen = joined.select("time", F.explode(dimensions).alias("of"), *SUMS)
    return (
        seen.withWatermark("time", watermark)
        .groupBy(F.window("time", window).alias("window"), "of.dimension", "of.name")
        .agg(F.max("of.label").alias("label"), *(F.sum(name).alias(name) for name in SUMS))
        .select(
            F.unix_millis("window.start").alias("window_ms"), "dimension", "name", "label", *SUMS
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
