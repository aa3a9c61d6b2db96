"""Consume queues: the offset of a message leads to its log position."""
