"""Sends: checks, log positions, batching, deduplication, and replies after the commit."""
