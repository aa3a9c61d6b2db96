"""The commit log: segments, appends, reads."""
