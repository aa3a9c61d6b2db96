"""A connection pool to the event database, configured so that committed data is on disk.

SQLite runs with a write-ahead log and synchronous=FULL: readers never wait for the writer, and a
commit is one fdatasync (decision 0012). PostgreSQL is used as its administrator configured it.

Every wait is bounded (decision 0031): for a free connection, for SQLite's lock, for a server's
reply. A caller that cannot wait that long calls `abandon`.

A connection to PostgreSQL whose waits are all bounded, whatever happens to the server.

If a server is stopped, a network is cut or another client holds a lock, a call neither succeeds nor
fails. So the client limits every wait and then closes the connection, and every transaction has a
timeout on the server too, so that a transaction that the client abandoned holds no locks.

State: soft.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from kourou.clock import SystemClock
from kourou.errors import ConfigError, Corrupt, MetadataUnavailable, MissingPackages
from kourou.model.limits import PASSWORD_FILE_BYTES_MAX

CONNECT_TIMEOUT_S = 3
"""PostgreSQL's own setting, whole seconds; a value in the URL takes precedence."""

ANSWER_TIMEOUT_MS = 10_000
"""For one statement; long enough for a batch on a slow disk."""

UPGRADE_TIMEOUT_MS = 600_000
"""For one statement of an upgrade: it may rewrite a table, or wait for another upgrade."""

TIMEOUT_OPTION = "kourou_timeout_ms"
"""The execution option of a connection with another statement timeout."""

WRITE_OPTION = "kourou_write"
"""The execution option of a connection that will write."""

_ONE_STATE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"

SERVER_GIVES_UP_FIRST = 0.9
"""The server's timeout as a share of the client's: its error says more than "no answer"."""

Result = TypeVar("Result")


@dataclass(slots=True)
class DatabaseTimeouts:
    """State shared by the connections of one pool. `over`: no call waits any more."""

    answer_ms: int
    over: bool = False


def connect_arguments(url: sa.URL) -> dict[str, Any]:
    """The driver's connection parameters, in addition to those in the URL."""
    # A database created in the C locale reports no encoding; its text would be returned as bytes.
    arguments = {
        "client_encoding": "utf8",
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "kourou",
    }
    return {name: value for name, value in arguments.items() if name not in url.query}


def bound(engine: Engine, timeouts: DatabaseTimeouts) -> None:
    """Limit the waits of every connection in the engine's pool."""
    make = _connection_class(timeouts)

    def connect(_dialect: object, _record: object, given: list[Any], named: Any) -> Any:
        return make.open(*given, **named)

    def begin(connection: sa.Connection) -> None:
        wait_ms = connection.get_execution_options().get(TIMEOUT_OPTION, timeouts.answer_ms)
        connection.connection.dbapi_connection.wait_ms = wait_ms  # type: ignore[union-attr]  # ours
        server_ms = int(wait_ms * SERVER_GIVES_UP_FIRST)
        if not connection.get_execution_options().get(WRITE_OPTION, False):
            connection.exec_driver_sql(_ONE_STATE)
        connection.exec_driver_sql(
            f"SET LOCAL statement_timeout = {server_ms};"
            f"SET LOCAL idle_in_transaction_session_timeout = {wait_ms + server_ms}"
        )

    def checkin(connection: Any, _record: object) -> None:
        if connection is not None:
            connection.wait_ms = timeouts.answer_ms

    sa.event.listen(engine, "do_connect", connect)
    sa.event.listen(engine, "begin", begin)
    sa.event.listen(engine, "checkin", checkin)


def _connection_class(timeouts: DatabaseTimeouts) -> Any:
    # The driver is an optional package, which SQLite does not need.
    import psycopg

    clock = SystemClock()

    class BoundedConnection(psycopg.Connection[Any]):
        """Psycopg's connection; each of its waits goes through `wait`."""

        wait_ms = timeouts.answer_ms

        @classmethod
        def open(cls, *given: Any, **named: Any) -> Any:
            if timeouts.over:
                raise psycopg.OperationalError("no more connections are opened")
            return cls.connect(*given, **named)

        def wait(self, gen: Any, *given: Any, **named: Any) -> Any:
            return super().wait(_watched(gen, self._check()), *given, **named)

        def _check(self) -> Callable[[], None]:
            deadline = clock.monotonic_ms() + self.wait_ms

            def check() -> None:
                if timeouts.over:
                    self.close()
                    raise psycopg.OperationalError("its reply is no longer awaited")
                if clock.monotonic_ms() > deadline:
                    self.close()
                    raise psycopg.OperationalError(f"no reply within {self.wait_ms} ms")

            return check

    return BoundedConnection


def _watched(
    work: Generator[Any, Any, Result], check: Callable[[], None]
) -> Generator[Any, Any, Result]:
    """The driver's wait, with a check after each step: every 100 ms, or when bytes arrived."""
    try:
        wanted = next(work)
        while True:
            ready = yield wanted
            check()
            wanted = work.send(ready)
    except StopIteration as finished:
        result: Result = finished.value
        return result


EVENT_STORE = "event store"
"""The default name of a database in messages."""

BUSY_TIMEOUT_MS = 5_000
WAL_ATTEMPTS = 100
POOL_TIMEOUT_S = 5
CONNECTIONS_KEPT = 2
CONNECTIONS_EXTRA = 4
JOURNAL_SIZE_BYTES_MAX = 64 * 1024 * 1024
RESTORE = (
    "restore it from a backup; the event store of a broker may be moved "
    "away: it is rebuilt from the log"
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def sqlite_url(path: Path) -> str:
    """The URL of a database in this file."""
    return URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None for any other database. Raises ConfigError."""
    return _file_of(_supported(url))


class Database:
    """The database behind an event store. Safe to use from several threads."""

    __slots__ = ("_timeouts", "engine", "file", "shown", "what")

    def __init__(
        self, url: str, *, answer_ms: int = ANSWER_TIMEOUT_MS, what: str = EVENT_STORE
    ) -> None:
        """Does not connect yet. Raises ConfigError for a URL that cannot be used.

        `answer_ms`: PostgreSQL's timeout for one statement; `what`: the database's name in
        messages.
        """
        parsed = _supported(url, what)
        self.what = what
        self.file = _file_of(parsed)
        """The path of an SQLite file; None for PostgreSQL and for an in-memory database."""
        self.shown = str(self.file or _shown(parsed))
        """The database's URL or path in messages, without a password."""
        self._timeouts = DatabaseTimeouts(answer_ms)
        try:
            self.engine = _make_engine(parsed, self._timeouts)
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise ConfigError(
                f"the {what} {self.shown} cannot be used: {error}",
                hint="for PostgreSQL: " + MissingPackages("", "postgres").hint,
            ) from error

    @property
    def is_sqlite(self) -> bool:
        """True for SQLite, False for PostgreSQL."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that sees one state of the database.

        Raises MetadataUnavailable, and Corrupt if the file is not a database any more.
        """
        with self._errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self, *, timeout_ms: int | None = None) -> Iterator[sa.Connection]:
        """A transaction that excludes other writers; committed unless an exception is raised.

        `timeout_ms`: PostgreSQL's timeout for one statement, if not the usual one. Raises
        MetadataUnavailable or Corrupt. Nothing was written then, unless the connection to a server
        was lost during the commit: the outcome is then unknown.
        """
        options: dict[str, Any] = {WRITE_OPTION: True}
        if timeout_ms is not None:
            options[TIMEOUT_OPTION] = timeout_ms
        with self._errors(), self.engine.connect() as connection:
            held = connection.execution_options(**options)
            with held.begin():
                yield held

    def close(self) -> None:
        """Close every connection; calls in progress end."""
        self.abandon()
        self.engine.dispose()

    def abandon(self) -> None:
        """Stop waiting for a server: calls in progress end at once, and later calls fail.

        Called from another thread; `close` is still required.
        """
        self._timeouts.over = True

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error) as error:
            raise database_error(self.shown, error, self.what) from error


def check_url(url: str) -> None:
    """Raise ConfigError for a URL that cannot be used; does not connect."""
    Database(url).close()


def with_password(url: str, file: Path | None) -> str:
    """`url` with the password from `file`, without its last line end.

    So a settings file, a command line or an environment needs no password. Raises ConfigError for a
    file that cannot be read or is empty, and for a URL that already has a password.
    """
    if file is None:
        return url
    try:
        with file.open("rb") as secret:
            found = secret.read(PASSWORD_FILE_BYTES_MAX + 1).decode().removesuffix("\n")
    except OSError as error:
        raise ConfigError(f"cannot read the password in {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"the password in {file} is not UTF-8 text") from None
    found = found.removesuffix("\r")
    if not found or len(found) > PASSWORD_FILE_BYTES_MAX:
        raise ConfigError(f"{file} holds no password", hint="write only the password, on one line")
    parsed = _supported(url)
    if parsed.password is not None or "password" in parsed.query:
        raise ConfigError(f"both the event store's URL and {file} have a password")
    return parsed.set(password=found).render_as_string(hide_password=False)


def database_error(
    shown: str, error: BaseException, what: str = EVENT_STORE
) -> MetadataUnavailable | Corrupt:
    """The error for a driver's error: a file that is not a database is Corrupt, not unavailable."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _DAMAGED:
        return damaged(shown, first_line(cause), what)
    return MetadataUnavailable(f"the {what} {shown} cannot be used: {first_line(cause)}")


def damaged(shown: str, why: str, what: str = EVENT_STORE) -> Corrupt:
    """The error for a database that cannot be read."""
    return Corrupt(f"the {what} {shown} is damaged: {why}", hint=RESTORE)


def first_line(error: BaseException) -> str:
    """The first line of an error, without the statements that SQLAlchemy appends."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _shown(url: URL) -> str:
    """A URL for messages: without passwords, which the query may have as well."""
    bare = url.difference_update_query(["password", "sslpassword"])
    return bare.render_as_string(hide_password=True)


def _supported(url: str, what: str = EVENT_STORE) -> URL:
    try:
        parsed = sa.make_url(url)
    except ArgumentError as error:
        # The URL may contain a password, so it is not repeated.
        raise ConfigError(
            f"the {what}'s URL cannot be read", hint="use sqlite:///file or postgresql://…"
        ) from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(
            f"the {what} cannot be a {parsed.get_backend_name()} database",
            hint="use sqlite:///file or postgresql://…",
        )
    if parsed.get_backend_name() == "postgresql" and parsed.get_driver_name() != "psycopg":
        # Bounded waits are ensured for this driver only.
        raise ConfigError(
            f"the {what} cannot use the driver {parsed.get_driver_name()}",
            hint="use postgresql://…, which uses psycopg",
        )
    return parsed


def _file_of(url: URL) -> Path | None:
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


def _make_engine(url: URL, timeouts: DatabaseTimeouts) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        engine = sa.create_engine(
            url,
            pool_pre_ping=True,
            pool_size=CONNECTIONS_KEPT,
            max_overflow=CONNECTIONS_EXTRA,
            pool_timeout=POOL_TIMEOUT_S,
            connect_args=connect_arguments(url),
        )
        bound(engine, timeouts)
        return engine
    options: dict[str, Any] = {}
    if url.database in (None, "", ":memory:"):
        # Every connection to an in-memory database is a separate database, so there is only one.
        options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    engine = sa.create_engine(url, **options)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Python's driver begins transactions by itself, but not before DDL and never IMMEDIATE; None
    # leaves that to `_begin_sqlite`.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    _switch_to_wal(cursor)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute(f"PRAGMA journal_size_limit = {JOURNAL_SIZE_BYTES_MAX}")
    cursor.close()


def _switch_to_wal(cursor: sqlite3.Cursor) -> None:
    # The switch needs exclusive access to the file and, unlike everything else, may fail without
    # waiting (others open the same new file at this moment). Taking a write lock does wait.
    for _ in range(WAL_ATTEMPTS - 1):
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("ROLLBACK")
    cursor.execute("PRAGMA journal_mode = WAL")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer takes the write lock at once: a lock taken later, after a read, can fail permanently.
    writes = connection.get_execution_options().get(WRITE_OPTION, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
