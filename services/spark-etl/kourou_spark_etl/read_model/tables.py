"""The tables of the read model, as the newest migration defines them.

The first column of every table is the query that writes it: two queries may have the same job, and
a query that restarts with a new checkpoint deletes only its own rows.

A column's info defines how a new value is merged with the existing one: `sum`, `min`, `max`;
otherwise it replaces it. Times are milliseconds since 1970 UTC.

State: projection of the topics up to the checkpoint of each query.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, Table, Text

metadata = MetaData()

SUM = {"merge": "sum"}
MIN = {"merge": "min"}
MAX = {"merge": "max"}


def _key(name: str, kind: type[Text | BigInteger | Integer] = Text) -> Column[object]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _number(name: str, info: Mapping[str, str] | None = None) -> Column[object]:
    return Column(name, BigInteger, nullable=False, info=dict(info or {}))


etl_batch = Table(
    "etl_batch",
    metadata,
    _key("query"),
    _key("batch_id", BigInteger),
    # The checkpoint's ID: another one means that the query was restarted.
    Column("query_id", Text, nullable=False),
    # The number of rows written here, not of rows that Spark read.
    _number("rows_written"),
    _number("at_ms"),
)

latency = Table(
    "latency",
    metadata,
    _key("query"),
    _key("window_ms", BigInteger),
    _key("stage"),
    _key("topic"),
    _key("consumer_group"),
    # As defined in kourou_spark_etl.buckets.
    _key("bucket", Integer),
    _number("samples", SUM),
    _number("sum_ms", SUM),
    _number("max_ms", MAX),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    _key("query"),
    _key("consumer_group"),
    _key("reason"),
    _key("origin_topic"),
    _number("letters", SUM),
    _number("first_ms", MIN),
    _number("last_ms", MAX),
)

backlog = Table(
    "backlog",
    metadata,
    _key("query"),
    _key("consumer_group"),
    _key("topic"),
    _key("at_ms", BigInteger),
    _number("lag"),
    _number("end_offsets"),
    _number("consumed_offsets"),
    Column("in_per_s", Double),
    Column("out_per_s", Double),
    Column("growth_per_s", Double),
    Column("drain_s", Double),
)

flight_delays = Table(
    "flight_delays",
    metadata,
    _key("query"),
    _key("dimension"),
    _key("name"),
    _key("window_ms", BigInteger),
    Column("label", Text, nullable=False),
    *(
        _number(name)
        for name in (
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
    ),
)

ABOUT: Mapping[str, str] = {
    "etl_batch": "the last batches of each query",
    "latency": "how many messages took how long, by stage and bucket",
    "dead_letters": "dead letters by group, reason and origin",
    "backlog": "the lag of groups, and how it grew",
    "flight_delays": "delays by carrier, route and hour in windows of event time",
}
"""A description of every table."""
