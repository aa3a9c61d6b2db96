"""A check whether a database is usable, before anything is changed, and without changing it.

Opening an SQLite file in the usual way changes it: the last connection to close it checkpoints the
log of a crashed process into it. So the file and that log are read as they are, and SQLite is
prevented from changing either.
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
    """Refuse a database that a newer version wrote (ConfigError) or that is damaged (Corrupt).

    A database that is missing, empty or unreachable is not refused: opening it reports the error.
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
    except OSError:  # missing, or not readable by this user
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
    """A connection that reads only the file and the log next to it, if there is one."""
    log, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    logged = log.exists() and log.stat().st_size > 0
    # "immutable" reads only the file; a log cannot be read without the shared memory file.
    how = "readonly_shm=1" if logged or shared.exists() else "immutable=1"
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&{how}", uri=True)
