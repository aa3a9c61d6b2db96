"""The read model: the results of queries, written batch by batch, each exactly once.

Invariants:  the rows of a batch and its row in etl_batch are committed in one transaction
             a known batch is skipped: Spark runs its last batch again after a crash
             a query with a new checkpoint restarts: its first batch deletes its old rows
             a gap between batches is rejected: the checkpoint belongs to another database

Read access over HTTP: rows of one table, and percentiles. Column names are looked up and values are
bound, so no part of a request becomes SQL.

    /tables                                      the list of tables
    /tables/backlog?consumer_group=g&order=-at_ms&limit=10
    /tables/latency_percentiles?topic=orders&since_ms=…

All calls block. They raise MetadataUnavailable while the database cannot be reached.

State: projection.

The tables of the read model, as the newest migration defines them, and their revisions.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, Table, Text
from sqlalchemy.dialects import postgresql, sqlite

from kourou.errors import BadRequest, Corrupt, Rejected
from kourou.eventstore.database import Database
from kourou.eventstore.revisions import Revisions
from kourou.model.limits import READ_MODEL_PAGE_ROWS_MAX, READ_MODEL_ROWS_MAX

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


Row = Mapping[str, Any]

BATCHES_KEPT = 1_000
"""The number of batches of each query in etl_batch; older ones are only in the event store."""

ROWS_AT_ONCE = 1_000
"""The number of rows of one statement."""


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """The identity of a batch. `query_id` is the checkpoint's ID, `at_ms` wall time."""

    query: str
    query_id: str
    batch_id: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A batch in etl_batch."""

    query: str
    query_id: str
    batch_id: int
    rows: int
    at_ms: int


class ReadModel:
    """The tables in one database. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @classmethod
    def open(cls, url: str) -> ReadModel:
        """Connect and upgrade the tables. Raises ConfigError or MetadataUnavailable."""
        database = Database(url, what="read model")
        if database.file is not None:
            Path(database.file).parent.mkdir(parents=True, exist_ok=True)
        try:
            REVISIONS.bring_up_to_date(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def close(self) -> None:
        """Close every connection; calls in progress in other threads end."""
        self.database.close()

    # -- writing ------------------------------------------------------------------------------

    def write(
        self,
        batch: QueryBatch,
        rows: Mapping[str, Iterable[Row]],
        *,
        dropping: Mapping[str, int] | None = None,
    ) -> int | None:
        """Write a batch's rows, by table. Returns their number, or None if the batch is known.

        `dropping`: in these tables, rows of this query with a lower `at_ms` are deleted. Raises
        Corrupt for a gap, Rejected for a batch with more rows than a driver should process.
        """
        with self.database.writing() as connection:
            last = self._last(connection, batch.query)
            if last is not None and last.query_id == batch.query_id:
                if batch.batch_id <= last.batch_id:
                    return None
                _check_next(last.batch_id, batch, self.database.shown)
            else:
                # The first batch, or the first one of a new checkpoint.
                _check_next(-1, batch, self.database.shown)
                self._forget(connection, batch.query)
            count = sum(
                self._merge(connection, metadata.tables[name], batch, of)
                for name, of in rows.items()
            )
            for name, before_ms in (dropping or {}).items():
                table = metadata.tables[name]
                old = (table.c.query == batch.query) & (table.c.at_ms < before_ms)
                connection.execute(table.delete().where(old))
            self._number(connection, batch, count)
        return count

    def note(self, batch: QueryBatch, rows: int) -> None:
        """Store the number of a batch whose rows are in files.

        No rows depend on it, so neither a gap nor a repetition is an error.
        """
        with self.database.writing() as connection:
            last = self._last(connection, batch.query)
            if last is not None and last.query_id == batch.query_id:
                if batch.batch_id <= last.batch_id:
                    return
            else:
                self._forget(connection, batch.query)
            self._number(connection, batch, rows)

    def _number(self, connection: sa.Connection, batch: QueryBatch, count: int) -> None:
        connection.execute(
            etl_batch.insert().values(
                query=batch.query,
                batch_id=batch.batch_id,
                query_id=batch.query_id,
                rows_written=count,
                at_ms=batch.at_ms,
            )
        )
        connection.execute(
            etl_batch.delete().where(
                (etl_batch.c.query == batch.query)
                & (etl_batch.c.batch_id <= batch.batch_id - BATCHES_KEPT)
            )
        )

    def _forget(self, connection: sa.Connection, query: str) -> None:
        for table in metadata.sorted_tables:
            connection.execute(table.delete().where(table.c.query == query))

    def _merge(
        self, connection: sa.Connection, table: sa.Table, batch: QueryBatch, rows: Iterable[Row]
    ) -> int:
        statement = _upsert(table, sqlite_dialect=self.database.is_sqlite)
        count = 0
        for some in _pages({**row, "query": batch.query} for row in rows):
            count += len(some)
            if count > READ_MODEL_ROWS_MAX:
                raise Rejected(
                    f"batch {batch.batch_id} of query {batch.query} has more than "
                    f"{READ_MODEL_ROWS_MAX} rows for table {table.name}",
                    hint="lower max_offsets_per_trigger, or use a longer window",
                )
            connection.execute(statement, some)
        return count

    # -- reading ------------------------------------------------------------------------------

    def _last(self, connection: sa.Connection, query: str) -> RecordedBatch | None:
        found = connection.execute(
            sa.select(etl_batch)
            .where(etl_batch.c.query == query)
            .order_by(etl_batch.c.batch_id.desc())
            .limit(1)
        ).first()
        return None if found is None else _written(found)

    def last_batch(self, query: str) -> RecordedBatch | None:
        """The newest batch of a query; None if it has none."""
        with self.database.reading() as connection:
            return self._last(connection, query)

    def batches(self) -> list[RecordedBatch]:
        """All stored batches, ordered by query and number."""
        ordered = sa.select(etl_batch).order_by(etl_batch.c.query, etl_batch.c.batch_id)
        with self.database.reading() as connection:
            return [_written(row) for row in connection.execute(ordered)]

    def rows(self, table: str, query: str, *, since: Mapping[str, int] | None = None) -> list[Row]:
        """A query's rows in a table with these minimum values of columns; used by jobs."""
        of = metadata.tables[table]
        wanted = sa.select(of).where(of.c.query == query)
        for column, lowest in (since or {}).items():
            wanted = wanted.where(of.c[column] >= lowest)
        with self.database.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted)]


def _written(row: Any) -> RecordedBatch:
    return RecordedBatch(row.query, row.query_id, row.batch_id, row.rows_written, row.at_ms)


def _check_next(last: int, batch: QueryBatch, shown: str) -> None:
    if batch.batch_id == last + 1:
        return
    known = f"has its batches up to {last}" if last >= 0 else "has none of its batches"
    raise Corrupt(
        f"query {batch.query} sent batch {batch.batch_id}, but the read model "
        f"{shown} {known}: this is not the read model that the query wrote",
        hint="restore that read model, or delete the checkpoint of the query to start again",
    )


def _pages(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield some


def _upsert(table: sa.Table, *, sqlite_dialect: bool) -> Any:
    """Insert, or merge with the row of the same key as defined in the columns' info."""
    insert: Any = (sqlite if sqlite_dialect else postgresql).insert(table)
    new = insert.excluded
    keys: Sequence[str] = [column.name for column in table.primary_key]
    changes = {
        column.name: _merged(column, new[column.name])
        for column in table.columns
        if column.name not in keys
    }
    return insert.on_conflict_do_update(index_elements=keys, set_=changes)


def _merged(old: sa.Column[Any], new: Any) -> Any:
    match old.info.get("merge"):
        case "sum":
            return old + new
        case "min":
            return sa.case((new < old, new), else_=old)
        case "max":
            return sa.case((new > old, new), else_=old)
    return new


# -- read access over HTTP ------------------------------------------------------------------------

ROWS = 100
PERCENTILES = "latency_percentiles"
SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
_BY = ("query", "stage", "topic", "consumer_group")
_OWN = ("limit", "offset", "order")
_BIGINT_MAX = 2**63 - 1

Question = Mapping[str, str]
JsonRow = dict[str, Any]


def list_tables(database: Database) -> list[JsonRow]:
    """Every table with its columns and number of rows."""
    with database.reading() as connection:
        found: list[JsonRow] = [
            {
                "table": name,
                "about": about,
                "columns": [column.name for column in metadata.tables[name].columns],
                "rows": connection.execute(
                    sa.select(sa.func.count()).select_from(metadata.tables[name])
                ).scalar_one(),
            }
            for name, about in ABOUT.items()
        ]
    columns = [*_BY, "samples", "mean_ms", "max_ms", *SHARES]
    about = "the table latency as percentiles, over all windows from since_ms to until_ms"
    return [*found, {"table": PERCENTILES, "about": about, "columns": columns}]


def ask(database: Database, name: str, question: Question) -> JsonRow | None:
    """The rows that a request selects; None if the table does not exist. Raises BadRequest.

    The result has `table`, `rows`, and `next` (the offset of the next page) if there are more.
    """
    if name == PERCENTILES:
        return {"table": name, "rows": _percentiles(database, question)}
    table = metadata.tables.get(name)
    if table is None:
        return None
    limit = _whole(question, "limit", ROWS, 1, READ_MODEL_PAGE_ROWS_MAX)
    offset = _whole(question, "offset", 0, 0, _BIGINT_MAX)
    wanted = sa.select(table).order_by(*_order(table, question.get("order", "")))
    for key, text in question.items():
        if key not in _OWN:
            column = _column(table, key)
            wanted = wanted.where(column == _value(column, text))
    with database.reading() as connection:
        rows = [
            dict(row._mapping) for row in connection.execute(wanted.limit(limit + 1).offset(offset))
        ]
    found: JsonRow = {"table": name, "rows": rows[:limit]}
    if len(rows) > limit:
        found["next"] = offset + limit
    return found


def _percentiles(database: Database, question: Question) -> list[JsonRow]:
    by = [latency.c[name] for name in _BY]
    wanted = sa.select(
        *by,
        latency.c.bucket,
        sa.func.sum(latency.c.samples).label("samples"),
        sa.func.sum(latency.c.sum_ms).label("sum_ms"),
        sa.func.max(latency.c.max_ms).label("max_ms"),
    ).group_by(*by, latency.c.bucket)
    for key, text in question.items():
        if key in ("since_ms", "until_ms"):
            at = _whole(question, key, 0, 0, _BIGINT_MAX)
            window = latency.c.window_ms
            wanted = wanted.where(window >= at if key == "since_ms" else window < at)
        elif key in _BY:
            wanted = wanted.where(latency.c[key] == text)
        else:
            raise BadRequest(
                f"{key!r} is not a condition", hint=f"{', '.join(_BY)}, since_ms, until_ms"
            )
    counts: dict[tuple[str, ...], dict[int, int]] = {}
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    with database.reading() as connection:
        for row in connection.execute(wanted):
            of = tuple(row[: len(_BY)])
            counts.setdefault(of, {})[row.bucket] = int(row.samples)
            total, highest = sums.get(of, (0, 0))
            # PostgreSQL's sums of BIGINT are decimals.
            sums[of] = (total + int(row.sum_ms), max(highest, row.max_ms))
    return [
        {
            **dict(zip(_BY, of, strict=True)),
            "samples": sum(buckets.values()),
            "mean_ms": round(sums[of][0] / sum(buckets.values()), 3),
            "max_ms": sums[of][1],
            # A bucket's upper bound may exceed the maximum.
            **{
                name: min(round(percentile_ms(buckets, share), 3), sums[of][1])
                for name, share in SHARES.items()
            },
        }
        for of, buckets in sorted(counts.items())
    ]


def _order(table: sa.Table, text: str) -> list[Any]:
    """Order by a column, descending with `-` before it, then by the key for stable pages."""
    by: list[Any] = list(table.primary_key)
    if not text:
        return by
    column = _column(table, text.removeprefix("-"))
    return [column.desc() if text.startswith("-") else column, *by]


def _column(table: sa.Table, name: str) -> sa.Column[Any]:
    if name not in table.columns:
        known = ", ".join(column.name for column in table.columns)
        raise BadRequest(f"table {table.name} has no column {name!r}", hint=f"it has {known}")
    return table.columns[name]


def _value(column: sa.Column[Any], text: str) -> str | int | float:
    kind = column.type.python_type
    if kind is str:
        if "\0" in text:
            raise BadRequest(f"{column.name} contains a NUL")
        return text
    try:
        value: int | float = kind(text)
    except ValueError:
        raise BadRequest(f"{column.name}={text[:64]!r} is not a number") from None
    if kind is int and abs(value) > _BIGINT_MAX:
        raise BadRequest(f"{column.name}={text[:64]!r} is too large")
    return value


def _whole(question: Question, name: str, default: int, low: int, high: int) -> int:
    text = question.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not low <= int(text[:20]) <= high:
        raise BadRequest(f"{name} is {text[:64]!r}; it must be between {low} and {high}")
    return int(text)
