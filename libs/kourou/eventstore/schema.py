"""The tables of an event store, their revisions, and a check before anything is changed.

State: for a broker, projection of the commit log's control topic; for a service without a commit
log, the stream is its own and events are written here first.

Times are milliseconds since 1970 UTC. Bodies are JSON text, so that an operator can query them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool

from kourou.errors import Corrupt, MetadataUnavailable
from kourou.eventstore.database import Database, damaged, database_error
from kourou.eventstore.revisions import Revisions

metadata = MetaData()

DECIDED = text("type <> 'ProgressRecorded'")
"""Condition of an index; a statement must repeat it word for word to use the index."""

streams = Table(
    "streams",
    metadata,
    Column("name", Text, primary_key=True),
    # The first event here; above 0 if earlier history was lost with another store.
    Column("first_offset", BigInteger, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    # Position of the newest event in the commit log; -1 without one.
    Column("position", BigInteger, nullable=False),
    # The greatest event time so far.
    Column("at_ms", BigInteger, nullable=False),
    # Bytes of the newest snapshot and of the event bodies since: a new snapshot is due when the
    # latter exceed the former.
    Column("snapshot_bytes", BigInteger, nullable=False),
    Column("bytes_since_snapshot", BigInteger, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    # The greatest time of this event and all before it: never decreases even if a clock stepped
    # back, so "as of" is a prefix of the stream.
    Column("as_of_ms", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("aggregate", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("trace_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    # The offset of the event that this one undoes.
    Column("undoes", BigInteger),
    Index("events_by_aggregate", "stream", "aggregate", "offset"),
    Index("events_by_time", "stream", "as_of_ms", "offset"),
    # Progress is recorded continuously; this index finds the other events without reading it.
    Index(
        "events_decided", "stream", "offset", "type", sqlite_where=DECIDED, postgresql_where=DECIDED
    ),
    sqlite_with_rowid=False,
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("stream", Text, primary_key=True),
    # The state after the events below this offset.
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    # zlib-compressed JSON of the state.
    Column("body", LargeBinary, nullable=False),
)


HEAD = "0002"
"""The newest revision: a store that has it opens without loading Alembic (a test compares)."""

VERSION_TABLE = "event_store_version"
"""Alembic's version table; the name is Kourou's own, because a database may be shared."""

MIGRATIONS = Path(__file__).with_name("migrations")
_UPGRADE_LOCK = 0x6B6F75726F75
"""PostgreSQL's advisory lock for an upgrade: the letters "kourou"."""

REVISIONS = Revisions("event store", HEAD, metadata, VERSION_TABLE, MIGRATIONS, _UPGRADE_LOCK)


MAGIC = b"SQLite format 3\0"


def check_usable(url: str) -> None:
    """Refuse a database that a newer version wrote (ConfigError) or that is damaged (Corrupt).

    Opening an SQLite file in the usual way changes it: the last connection to close it checkpoints
    the log of a crashed process into it. So the file and that log are read as they are, and SQLite
    is prevented from changing either.

    A database that is missing, empty or unreachable is not refused: opening it reports the error.
    """
    database = Database(url)
    with closing(database), suppress(MetadataUnavailable):
        if database.file is not None:
            _check_file(database.file)
        elif not database.is_sqlite:
            with database.reading() as connection:
                REVISIONS.check(REVISIONS.current(connection), database.shown)


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError:  # missing, or not readable by this user
        return
    if not magic:
        return
    if magic != MAGIC:
        raise damaged(str(path), "it is not an SQLite database")
    engine = sa.create_engine("sqlite://", creator=lambda: _untouched(path), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            found = REVISIONS.current(connection)
    except (DatabaseError, sqlite3.Error) as error:
        failure = database_error(str(path), error)
        if isinstance(failure, Corrupt):
            raise failure from error
        return
    REVISIONS.check(found, str(path))


def _untouched(path: Path) -> sqlite3.Connection:
    """A connection that reads only the file and the log next to it, if there is one."""
    log, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    logged = log.exists() and log.stat().st_size > 0
    # "immutable" reads only the file; a log cannot be read without the shared memory file.
    how = "readonly_shm=1" if logged or shared.exists() else "immutable=1"
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&{how}", uri=True)
