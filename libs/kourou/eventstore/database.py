"""A connection pool to the event database, set up so that what it says is committed is on disk.

Lives here: which databases are supported, their settings, and how their errors become ours.
May not live here: tables, statements, migrations.

SQLite runs with a write-ahead log and synchronous=FULL: readers never wait for the writer, and a
commit is one fdatasync (decision 0012). PostgreSQL is taken as its administrator configured it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from kourou.errors import ConfigError, MetadataUnavailable

BUSY_TIMEOUT_MS = 5_000
JOURNAL_SIZE_BYTES_MAX = 64 * 1024 * 1024
_WRITE = "kourou_write"


def sqlite_url(path: Path) -> str:
    """The URL of a database in this file."""
    return URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


class Database:
    """The database behind an event store. Safe to use from several threads."""

    __slots__ = ("engine", "shown")

    def __init__(self, url: str) -> None:
        """Connects lazily. Raises ConfigError for a URL that cannot be used."""
        parsed = _supported(url)
        self.shown = parsed.render_as_string(hide_password=True)
        try:
            self.engine = _make_engine(parsed)
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise ConfigError(
                f"the event store {self.shown} cannot be used: {error}",
                hint="for PostgreSQL install kourou[postgres]",
            ) from error

    @property
    def is_sqlite(self) -> bool:
        """SQLite, as opposed to PostgreSQL."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that sees one state of the database. Raises MetadataUnavailable."""
        with self._errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that no other writer can overtake; committed if nothing is raised.

        Raises MetadataUnavailable, and then nothing was written.
        """
        with self._errors(), self.engine.connect() as connection:
            held = connection.execution_options(**{_WRITE: True})
            with held.begin():
                yield held

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error) as error:
            cause = getattr(error, "orig", None) or error
            raise MetadataUnavailable(
                f"the event store {self.shown} cannot be used: {first_line(cause)}"
            ) from error


def first_line(error: BaseException) -> str:
    """An error's own sentence, without the statements that SQLAlchemy appends."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _supported(url: str) -> URL:
    try:
        parsed = sa.make_url(url)
    except ArgumentError as error:
        # The text may hold a password, so it is not repeated.
        raise ConfigError(
            "the event store's URL cannot be read", hint="sqlite:///file or postgresql://…"
        ) from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(
            f"the event store cannot be a {parsed.get_backend_name()} database",
            hint="sqlite:///file or postgresql://…",
        )
    return parsed


def _make_engine(url: URL) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url, pool_pre_ping=True, pool_size=2, max_overflow=4)
    options: dict[str, Any] = {}
    if url.database in (None, "", ":memory:"):
        # Every connection to a database in memory is another database, so there is only one.
        options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    engine = sa.create_engine(url, **options)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Python's driver begins transactions by itself, but not before DDL and never IMMEDIATE; None
    # hands that over to `_begin_sqlite`.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute(f"PRAGMA journal_size_limit = {JOURNAL_SIZE_BYTES_MAX}")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer takes the write lock at once: a lock taken later, after a read, can fail for good.
    writes = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
