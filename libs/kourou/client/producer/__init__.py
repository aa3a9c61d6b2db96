"""Producers: messages become records in frames, and replies become results."""
