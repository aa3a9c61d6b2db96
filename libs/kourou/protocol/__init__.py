"""The words of Kourou: requests, replies, frames and records as bytes, without sockets or files.

Lives here: every encoding that leaves a process, with its limits.
May not live here: who sends what to whom (kourou.engine, kourou.transport), any I/O.
"""
