"""Events kept without limit in a database; the only package that uses SQLAlchemy and Alembic."""
