"""Alembic's door: runs the wanted revisions on the connection that read_model.schema holds.

Executed by Alembic and by nobody else. The caller holds the write lock and the transaction.
"""

from __future__ import annotations

from alembic import context

from kourou_spark_etl.read_model.schema import VERSION_TABLE
from kourou_spark_etl.read_model.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
