"""The operations of the HTTP API; each module is a chapter."""
