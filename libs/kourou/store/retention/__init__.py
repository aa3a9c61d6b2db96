"""Deletion of old segments."""
