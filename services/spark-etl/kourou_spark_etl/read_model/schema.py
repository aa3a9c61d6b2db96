"""The revisions of the read model's tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from kourou.eventstore.database import Database
from kourou.eventstore.revisions import Revisions
from kourou_spark_etl.read_model.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0001"
"""The newest revision: tables that have it are opened without Alembic (a test compares)."""

VERSION_TABLE = "read_model_version"
"""Not the default name, because event store and read model may share a database."""

MIGRATIONS = Path(__file__).with_name("migrations")
_UPGRADE_LOCK = 0x6B6F75726E
"""PostgreSQL's advisory lock for upgrades."""

_REVISIONS = Revisions("read model", HEAD, metadata, VERSION_TABLE, MIGRATIONS, _UPGRADE_LOCK)


def bring_up_to_date(database: Database) -> None:
    """Apply the missing revisions; if an error is raised, nothing is changed.

    Raises ConfigError for tables of a newer version, Corrupt, MetadataUnavailable.
    """
    _REVISIONS.bring_up_to_date(database)


def upgrade(connection: sa.Connection, shown: str) -> None:
    """Apply all missing revisions in the connection's transaction, like `bring_up_to_date`."""
    _REVISIONS.upgrade(connection, "head", shown)


def alembic_config() -> Config:
    """Alembic's configuration for these migrations; needs no file."""
    return _REVISIONS.alembic_config()
