"""Aggregates in SQL, each batch written once: with eventstore the only home of SQLAlchemy."""
