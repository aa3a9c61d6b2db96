"""The operations of the HTTP API, a module each chapter."""
