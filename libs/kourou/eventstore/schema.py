"""The revisions of an event store's tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from kourou.eventstore.database import Database
from kourou.eventstore.revisions import Revisions
from kourou.eventstore.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0002"
"""The newest revision: a store that has it opens without loading Alembic (a test compares)."""

VERSION_TABLE = "event_store_version"
"""Alembic's version table; the name is Kourou's own, because a database may be shared."""

MIGRATIONS = Path(__file__).with_name("migrations")
_UPGRADE_LOCK = 0x6B6F75726F75
"""PostgreSQL's advisory lock for an upgrade: the letters "kourou"."""


def _revisions() -> Revisions:
    return Revisions("event store", HEAD, metadata, VERSION_TABLE, MIGRATIONS, _UPGRADE_LOCK)


def bring_up_to_date(database: Database) -> None:
    """Apply the missing revisions; if an error is raised, nothing is changed.

    Raises ConfigError for tables that a newer version created, Corrupt, MetadataUnavailable.
    """
    _revisions().bring_up_to_date(database)


def upgrade(connection: sa.Connection, revision: str, shown: str) -> None:
    """Apply the revisions up to `revision` in the connection's transaction."""
    _revisions().upgrade(connection, revision, shown)


def alembic_config() -> Config:
    """Alembic's configuration for these migrations; needs no file."""
    return _revisions().alembic_config()


def check_revision(found: str | None, shown: str) -> None:
    """Raise ConfigError for a revision that this version does not have."""
    _revisions().check(found, shown)


def current_revision(connection: sa.Connection) -> str | None:
    """The revision of the tables; None for an empty database."""
    return _revisions().current(connection)
