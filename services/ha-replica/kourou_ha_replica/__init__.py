"""The replica service."""
