"""File descriptors: a sandboxed process has /dev/null three times, one socket, and nothing else."""

from __future__ import annotations

import os

CHANNEL_FD = 3

DESCRIPTORS_MAX = 256
"""The zygote's limit of open descriptors, and the range in which they are closed."""


def keep_only(channel: int, *, keep_stderr: bool = False) -> None:
    """Make `channel` descriptor 3, make 1 and 2 /dev/null like 0, and close all others."""
    if channel != CHANNEL_FD:
        os.dup2(channel, CHANNEL_FD, inheritable=False)
    os.dup2(0, 1)
    if not keep_stderr:
        os.dup2(0, 2)
    os.closerange(CHANNEL_FD + 1, DESCRIPTORS_MAX)
