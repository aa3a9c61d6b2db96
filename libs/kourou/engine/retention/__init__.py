"""Deletion of old log segments."""
