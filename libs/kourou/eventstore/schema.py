"""Bring a database's tables up to date, or say clearly why that cannot be.

Lives here: running the migrations when a store is opened. May not live here: the migrations.

All revisions are applied in one transaction under the database's write lock, so two processes that
open a store at once do not collide and a failed upgrade leaves the tables as they were.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from kourou.errors import ConfigError, MetadataUnavailable
from kourou.eventstore.database import Database, first_line
from kourou.eventstore.postgres import UPGRADE_TIMEOUT_MS

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0002"
"""The newest revision: a store that has it opens without loading Alembic (a test compares)."""

VERSION_TABLE = "event_store_version"
"""Where Alembic keeps the revision; a name of our own, for a database may be shared."""

MIGRATIONS = Path(__file__).with_name("migrations")
_UPGRADE_LOCK = 0x6B6F75726F75
"""PostgreSQL's advisory lock of an upgrade: the letters "kourou"."""


def bring_up_to_date(database: Database) -> None:
    """Apply the revisions that are missing; whatever is raised, nothing is changed.

    Raises ConfigError for tables that a newer program has made, Corrupt, MetadataUnavailable.
    """
    with database.reading() as connection:
        found = current_revision(connection)
        if found == HEAD:
            return
        check_revision(found, database.shown)
    with database.writing(timeout_ms=UPGRADE_TIMEOUT_MS) as connection:
        if not database.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        upgrade(connection, "head", database.shown)


def upgrade(connection: sa.Connection, revision: str, shown: str) -> None:
    """Apply the revisions up to `revision` in the connection's transaction."""
    from alembic import command
    from alembic.util.exc import CommandError

    found = current_revision(connection)
    config = alembic_config()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise MetadataUnavailable(
            f"the event store {shown} cannot be upgraded from revision {found}: {first_line(error)}"
        ) from error


def alembic_config() -> Config:
    """Alembic's configuration for our migrations; needs no file."""
    from alembic.config import Config

    config = Config()
    # The option is a template in which a percent sign must be doubled.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def check_revision(found: str | None, shown: str) -> None:
    """Raise ConfigError for a revision that this program has never heard of."""
    if found in (None, HEAD):
        return
    from alembic.script import ScriptDirectory

    known = [
        each.revision for each in ScriptDirectory.from_config(alembic_config()).walk_revisions()
    ]
    if found not in known:
        raise ConfigError(
            f"a newer version of Kourou wrote the event store {shown}: it has revision {found}, "
            f"and this program knows up to {HEAD}",
            hint="use the newer program",
        )


def current_revision(connection: sa.Connection) -> str | None:
    """The revision of the tables; None for an empty database."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    version = sa.table(VERSION_TABLE, sa.column("version_num", sa.String))
    return connection.execute(sa.select(version.c.version_num)).scalar()
