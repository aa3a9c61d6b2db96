"""Requests, replies, frames and records as bytes, without sockets or files."""
