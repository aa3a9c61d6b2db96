"""Alembic's door: runs the wanted revisions on the connection that kourou.eventstore.schema holds.

Executed by Alembic and by nobody else. The caller holds the write lock and the transaction.
"""

from __future__ import annotations

from alembic import context

from kourou.eventstore.schema import VERSION_TABLE
from kourou.eventstore.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
