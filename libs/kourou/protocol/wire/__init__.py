"""Frames and headers of both wire protocols."""
