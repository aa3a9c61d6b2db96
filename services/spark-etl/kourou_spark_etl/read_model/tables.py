"""The tables of the read model, as the newest migration defines them, and their revisions.

The first column of every table is the query that writes it: two queries may have the same job, and
a query that restarts with a new checkpoint deletes only its own rows.

A column's info defines how a new value is merged with the existing one: `sum`, `min`, `max`;
otherwise it replaces it. Times are milliseconds since 1970 UTC.

Durations are counted in logarithmic histogram buckets: their counts can be added, and percentiles
computed from them. A percentile is its bucket's upper bound: at most a tenth too high, never too
low.

    bucket 0           0 ms
    bucket n           above BASE ** (n - 2), up to BASE ** (n - 1) ms: 1 is up to 1 ms

State: projection of the topics up to the checkpoint of each query.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, Table, Text

from kourou.eventstore.revisions import Revisions

# -- histogram buckets ----------------------------------------------------------------------------

BASE = 1.1
_ROUNDING = 1e-9
"""Tolerance for the rounding of logarithms, so that a value equal to a bound is in the bucket
below.
"""


def bucket_of(ms: int) -> int:
    """The bucket of a duration."""
    if ms <= 0:
        return 0
    return math.ceil(math.log(ms) / math.log(BASE) - _ROUNDING) + 1


def upper_ms(bucket: int) -> float:
    """The greatest duration of a bucket."""
    return 0.0 if bucket <= 0 else BASE ** (bucket - 1)


def percentile_ms(counts: Mapping[int, int], share: float) -> float:
    """The upper bound of the share (0 to 1) of all samples that are shortest; 0 without samples."""
    wanted = share * sum(counts.values())
    below = 0
    for bucket in sorted(counts):
        below += counts[bucket]
        if below >= wanted:
            return upper_ms(bucket)
    return 0.0


# -- tables ---------------------------------------------------------------------------------------

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
    # See the header.
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

FLIGHT_SUMS = (
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

flight_delays = Table(
    "flight_delays",
    metadata,
    _key("query"),
    _key("dimension"),
    _key("name"),
    _key("window_ms", BigInteger),
    Column("label", Text, nullable=False),
    *map(_number, FLIGHT_SUMS),
)

ABOUT: Mapping[str, str] = {
    "etl_batch": "the last batches of each query",
    "latency": "how many messages took how long, by stage and bucket",
    "dead_letters": "dead letters by group, reason and origin",
    "backlog": "the lag of groups, and how it grew",
    "flight_delays": "delays by carrier, route and hour in windows of event time",
}
"""A description of every table."""


# -- revisions ------------------------------------------------------------------------------------

HEAD = "0001"
"""The newest revision: tables that have it are opened without Alembic (a test compares)."""

VERSION_TABLE = "read_model_version"
"""Not the default name, because event store and read model may share a database."""

MIGRATIONS = Path(__file__).with_name("migrations")
_UPGRADE_LOCK = 0x6B6F75726E
"""PostgreSQL's advisory lock for upgrades."""

REVISIONS = Revisions("read model", HEAD, metadata, VERSION_TABLE, MIGRATIONS, _UPGRADE_LOCK)
