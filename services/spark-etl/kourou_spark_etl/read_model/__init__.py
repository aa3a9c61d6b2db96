"""Aggregates in SQL, each batch written once. Except for eventstore, only this uses SQLAlchemy."""
