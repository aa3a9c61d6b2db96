"""The Python filters of consumer groups."""
