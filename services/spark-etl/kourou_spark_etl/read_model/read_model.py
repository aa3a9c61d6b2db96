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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from kourou.errors import BadRequest, Corrupt, Rejected
from kourou.eventstore.database import Database
from kourou.model.limits import READ_MODEL_PAGE_ROWS_MAX, READ_MODEL_ROWS_MAX
from kourou_spark_etl.read_model.tables import (
    ABOUT,
    REVISIONS,
    etl_batch,
    latency,
    metadata,
    percentile_ms,
)

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
