"""What was decided, kept without limit in a database: the only home of SQLAlchemy and Alembic."""
