"""The permissions of a topic (RocketMQ `PermName`)."""

from __future__ import annotations

from enum import IntFlag


class Permission(IntFlag):
    """Bits of a topic's or broker's `perm`; 6 = read and write, 4 = read only, 2 = write only."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8
    READ_WRITE = 6


READ = int(Permission.READ)
WRITE = int(Permission.WRITE)
"""As plain integers, for checks of every message: a flag's operators take a microsecond."""
