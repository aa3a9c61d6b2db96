"""Requests of operators: topics, settings, history, bootstrap."""
