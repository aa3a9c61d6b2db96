"""Leases: HTTP clients hold messages for a time, without a connection of their own."""
