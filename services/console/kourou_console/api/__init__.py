"""The operations of the HTTP API, by chapters of the reference page."""
