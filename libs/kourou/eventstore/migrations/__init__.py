"""The schema history: Alembic revisions, applied when a store is opened."""
