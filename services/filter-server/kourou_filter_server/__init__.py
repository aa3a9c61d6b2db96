"""The filter server: runs consumers' filters in a sandbox, in a process of its own."""
