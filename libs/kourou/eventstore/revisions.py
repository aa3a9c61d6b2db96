"""Upgrading a set of tables to the revision that this version supports, or refusing it.

An empty database gets the tables of the newest revision directly, without loading Alembic, which
would take a tenth of a broker's startup time (a test compares both ways).

All revisions are applied in one transaction under the database's write lock, so two processes that
open the same tables at once do not collide, and a failed upgrade changes nothing. Each set of
tables has its own version table and lock, because several may share a database.

State: none, except a lock.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from kourou.errors import ConfigError, MetadataUnavailable
from kourou.eventstore.database import UPGRADE_TIMEOUT_MS, Database, first_line

if TYPE_CHECKING:
    from alembic.config import Config

_ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps its context in module globals, so the brokers of one process take turns."""


@dataclass(frozen=True, slots=True)
class Revisions:
    """The revisions of one set of tables.

    `what` is their name in errors, `head` the newest revision and `tables` its result, `folder` has
    Alembic's migrations, `lock` is PostgreSQL's advisory lock for an upgrade.
    """

    what: str
    head: str
    tables: sa.MetaData
    version_table: str
    folder: Path
    lock: int

    def bring_up_to_date(self, database: Database) -> None:
        """Apply the missing revisions; if an error is raised, nothing is changed.

        Tables with the newest revision are opened without loading Alembic. Raises ConfigError for
        tables that a newer version created, Corrupt, MetadataUnavailable.
        """
        with database.reading() as connection:
            found = self.current(connection)
            if found == self.head:
                return
            self.check(found, database.shown)
        with database.writing(timeout_ms=UPGRADE_TIMEOUT_MS) as connection:
            if not database.is_sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(self.lock)))
            if self.current(connection) is None:  # checked under the lock
                self.create(connection)
            else:
                self.upgrade(connection, "head", database.shown)

    def create(self, connection: sa.Connection) -> None:
        """Create the tables of the newest revision in an empty database."""
        self.tables.create_all(connection, checkfirst=False)
        # As Alembic creates it.
        version = sa.Table(
            self.version_table,
            sa.MetaData(),
            sa.Column("version_num", sa.String(32), nullable=False),
            sa.PrimaryKeyConstraint("version_num", name=f"{self.version_table}_pkc"),
        )
        version.create(connection)
        connection.execute(version.insert().values(version_num=self.head))

    def upgrade(self, connection: sa.Connection, revision: str, shown: str) -> None:
        """Apply the revisions up to `revision` in the connection's transaction."""
        from alembic import command
        from alembic.util.exc import CommandError

        found = self.current(connection)
        config = self.alembic_config()
        config.attributes["connection"] = connection
        try:
            with _ONE_AT_A_TIME:
                command.upgrade(config, revision)
        except CommandError as error:
            raise MetadataUnavailable(
                f"the {self.what} {shown} cannot be upgraded from revision {found}: "
                f"{first_line(error)}"
            ) from error

    def alembic_config(self) -> Config:
        """Alembic's configuration for these migrations; needs no file."""
        from alembic.config import Config

        config = Config()
        # The option is a template in which percent signs must be doubled.
        config.set_main_option("script_location", str(self.folder).replace("%", "%%"))
        return config

    def check(self, found: str | None, shown: str) -> None:
        """Raise ConfigError for a revision that this version does not have."""
        if found in (None, self.head):
            return
        from alembic.script import ScriptDirectory

        scripts = ScriptDirectory.from_config(self.alembic_config())
        if found not in [each.revision for each in scripts.walk_revisions()]:
            raise ConfigError(
                f"the {self.what} {shown} was written by a newer version of Kourou: it "
                f"has revision {found}, but this version supports revisions up to "
                f"{self.head}",
                hint="use the newer version",
            )

    def current(self, connection: sa.Connection) -> str | None:
        """The revision of the tables; None for an empty database."""
        if not sa.inspect(connection).has_table(self.version_table):
            return None
        version = sa.table(self.version_table, sa.column("version_num", sa.String))
        return connection.execute(sa.select(version.c.version_num)).scalar()
