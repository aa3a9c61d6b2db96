"""The namesrv service."""
