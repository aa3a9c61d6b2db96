"""The read model: the results of queries, written batch by batch, each exactly once.

Invariants:  the rows of a batch and its row in etl_batch are committed in one transaction
             a known batch is skipped: Spark runs its last batch again after a crash
             a query with a new checkpoint restarts: its first batch deletes its old rows
             a gap between batches is rejected: the checkpoint belongs to another database

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

from kourou.errors import Corrupt, Rejected
from kourou.eventstore.database import Database
from kourou.model.limits import READ_MODEL_ROWS_MAX
from kourou_spark_etl.read_model.schema import bring_up_to_date
from kourou_spark_etl.read_model.tables import etl_batch, metadata

Row = Mapping[str, Any]

BATCHES_KEPT = 1_000
"""The number of batches of each query in etl_batch; older ones are only in the event store."""

ROWS_AT_ONCE = 1_000
"""The number of rows of one statement."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The identity of a batch. `query_id` is the checkpoint's ID, `at_ms` wall time."""

    query: str
    query_id: str
    batch_id: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Written:
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
            bring_up_to_date(database)
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
        batch: Batch,
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

    def note(self, batch: Batch, rows: int) -> None:
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

    def _number(self, connection: sa.Connection, batch: Batch, count: int) -> None:
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
        self, connection: sa.Connection, table: sa.Table, batch: Batch, rows: Iterable[Row]
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

    def _last(self, connection: sa.Connection, query: str) -> Written | None:
        found = connection.execute(
            sa.select(etl_batch)
            .where(etl_batch.c.query == query)
            .order_by(etl_batch.c.batch_id.desc())
            .limit(1)
        ).first()
        return None if found is None else _written(found)

    def last_batch(self, query: str) -> Written | None:
        """The newest batch of a query; None if it has none."""
        with self.database.reading() as connection:
            return self._last(connection, query)

    def batches(self) -> list[Written]:
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


def _written(row: Any) -> Written:
    return Written(row.query, row.query_id, row.batch_id, row.rows_written, row.at_ms)


def _check_next(last: int, batch: Batch, shown: str) -> None:
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
