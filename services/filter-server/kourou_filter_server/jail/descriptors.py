"""Descriptors: a jailed process has /dev/null three times and one socket, and nothing else open."""

from __future__ import annotations

import os

CHANNEL_FD = 3

DESCRIPTORS_MAX = 256
"""What the zygote may have open; as many are looked at when they are closed."""


def keep_only(channel: int, *, keep_stderr: bool = False) -> None:
    """Make `channel` descriptor 3, /dev/null (which 0 is) 1 and 2, and close all others."""
    if channel != CHANNEL_FD:
        os.dup2(channel, CHANNEL_FD, inheritable=False)
    os.dup2(0, 1)
    if not keep_stderr:
        os.dup2(0, 2)
    os.closerange(CHANNEL_FD + 1, DESCRIPTORS_MAX)
