"""The words of Kourou: requests, replies, frames and records as bytes, without sockets or files."""
