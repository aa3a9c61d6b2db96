"""Can this database be used? Asked before anything is changed, and without changing it.

To open SQLite's file in the usual way changes it: whoever closes it last writes the log of a
crashed process into it. So the file is read as it lies there, with that log, and SQLite is kept
from touching either.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool

from kourou.errors import Corrupt, MetadataUnavailable
from kourou.eventstore.database import Database, damaged, database_error
from kourou.eventstore.schema import check_revision, current_revision

MAGIC = b"SQLite format 3\0"


def check_usable(url: str) -> None:
    """Refuse a database that a newer program wrote (ConfigError) or that is damaged (Corrupt).

    One that is not there, is empty or cannot be reached is not refused: opening it says what is to
    be said.
    """
    database = Database(url)
    with closing(database), suppress(MetadataUnavailable):
        if database.file is not None:
            _check_file(database.file)
        elif not database.is_sqlite:
            with database.reading() as connection:
                check_revision(current_revision(connection), database.shown)


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError:  # not there, or not ours to read
        return
    if not magic:
        return
    if magic != MAGIC:
        raise damaged(str(path), "it is not an SQLite database")
    engine = sa.create_engine("sqlite://", creator=lambda: _untouched(path), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            found = current_revision(connection)
    except (DatabaseError, sqlite3.Error) as error:
        failure = database_error(str(path), error)
        if isinstance(failure, Corrupt):
            raise failure from error
        return
    check_revision(found, str(path))


def _untouched(path: Path) -> sqlite3.Connection:
    """A connection that reads the file, and the log beside it if there is one, and no more."""
    log, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    logged = log.exists() and log.stat().st_size > 0
    # "immutable" reads the file alone; without the shared memory file its log cannot be read so.
    how = "readonly_shm=1" if logged or shared.exists() else "immutable=1"
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&{how}", uri=True)
