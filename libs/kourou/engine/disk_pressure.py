"""The levels of disk usage, and the behaviour at each of them.

State: soft; the next measurement restores it.

Reads continue at every level. So do the broker's own records (progress, decisions), for which the
reserved segment has space. A disk that reports ENOSPC counts as FORCING, whatever its usage.

Invariants:
- a level depends on the last measurement only; `refusing` and `starving` have hysteresis
- each change is reported once
"""

from __future__ import annotations

from enum import IntEnum

from kourou.engine.policy import BrokerPolicy
from kourou.errors import DiskFull
from kourou.model.limits import DISK_SIZE_WARN_BYTES
from kourou.runtime import LogWarning

STARVING_PERCENT = 95
_LOW_OVER_BYTES = DISK_SIZE_WARN_BYTES * 9 // 8
"""Free space must rise to this before it can be reported as low again."""


class DiskLevel(IntEnum):
    """The level of disk usage: by default the levels begin at 75, 85, 90 and 95 % in use.

    Refusing lasts until the usage is below FORCING, starving until it is below REFUSING.
    """

    NORMAL = 0  # expired segments are deleted at the hours of deleteWhen
    CLEANING = 1  # expired segments are deleted at any hour (diskMaxUsedSpaceRatio)
    FORCING = 2  # the oldest unexpired segments are deleted, too (diskSpaceCleanForciblyRatio)
    REFUSING = 3  # clients' messages are refused (diskSpaceWarningLevelRatio)
    STARVING = 4  # the key index is paused, and the disk reserve is released


class DiskPressure:
    """The last measurement of the disk, and its consequences. `policy` has the thresholds."""

    __slots__ = ("_policy", "free_bytes", "level", "low", "refusing", "starving", "total_bytes")

    def __init__(self, policy: BrokerPolicy) -> None:
        self._policy = policy
        self.total_bytes = 0
        self.free_bytes = 0
        self.level = DiskLevel.NORMAL
        self.refusing = False
        self.starving = False
        self.low = False

    @property
    def used_percent(self) -> int:
        """Disk usage in whole percent, rounded up as in RocketMQ; 0 if not measured yet."""
        if not self.total_bytes:
            return 0
        return -(-100 * (self.total_bytes - self.free_bytes) // self.total_bytes)

    @property
    def _force_percent(self) -> int:
        return max(self._policy.disk_force_percent, self._policy.disk_clean_percent)

    @property
    def _refuse_percent(self) -> int:
        return max(self._policy.disk_refuse_percent, self._force_percent)

    def measured(self, total_bytes: int, free_bytes: int, *, full: bool) -> list[LogWarning]:
        """Apply a measurement; `full`: the disk just refused space."""
        self.total_bytes, self.free_bytes = total_bytes, free_bytes
        force, refuse = self._force_percent, self._refuse_percent
        starve = max(STARVING_PERCENT, refuse)
        bounds = (self._policy.disk_clean_percent, force, refuse, starve)
        self.level = DiskLevel(sum(self._reaches(percent) for percent in bounds))
        if full:
            self.level = max(self.level, DiskLevel.FORCING)
        return [
            *self._turn_refusing(force, refuse),
            *self._turn_starving(refuse, starve),
            *self._turn_low(),
        ]

    def bytes_over(self) -> int:
        """Return how much to delete until usage is below FORCING; 0 or less if nothing."""
        used = self.total_bytes - self.free_bytes
        # Strictly below: the number of bytes for which used * 100 < percent * total.
        return used - (-(-self._force_percent * self.total_bytes // 100) - 1)

    def check_writable(self) -> None:
        """Raise DiskFull while clients' messages are refused."""
        if self.refusing:
            raise DiskFull(
                f"the broker's disk is {self.used_percent} % full; nothing was stored",
                hint="free space or send to another broker; reads continue",
            )

    def _reaches(self, percent: int) -> bool:
        return 100 * (self.total_bytes - self.free_bytes) >= percent * self.total_bytes > 0

    def _turn_refusing(self, force: int, refuse: int) -> list[LogWarning]:
        if not self.refusing and self._reaches(refuse):
            self.refusing = True
            return [
                LogWarning(
                    "sends-paused: the disk is %(used_percent)d %% full: messages are refused "
                    "until it is below %(resume_percent)d %%; reads continue",
                    {"used_percent": self.used_percent, "resume_percent": force},
                )
            ]
        if self.refusing and not self._reaches(force):
            self.refusing = False
            return [
                LogWarning(
                    "sends-resumed: the disk is %(used_percent)d %% full: messages are accepted "
                    "again",
                    {"used_percent": self.used_percent},
                )
            ]
        return []

    def _turn_starving(self, refuse: int, starve: int) -> list[LogWarning]:
        if not self.starving and self._reaches(starve):
            self.starving = True
            return [
                LogWarning(
                    "key-index-paused: the disk is %(used_percent)d %% full: the key index is "
                    "paused, and the remaining space is reserved for offsets and checkpoints",
                    {"used_percent": self.used_percent},
                )
            ]
        if self.starving and not self._reaches(refuse):
            self.starving = False
            return [
                LogWarning(
                    "key-index-resumed: the disk is %(used_percent)d %% full: the key index "
                    "continues",
                    {"used_percent": self.used_percent},
                )
            ]
        return []

    def _turn_low(self) -> list[LogWarning]:
        low = self.free_bytes < (_LOW_OVER_BYTES if self.low else DISK_SIZE_WARN_BYTES)
        is_new = low and not self.low and self.total_bytes > 0
        self.low = low and self.total_bytes > 0
        if not is_new:
            return []
        return [
            LogWarning(
                "disk-space-low: the store's disk has only %(free_gib).1f GiB free; a broker needs "
                "%(needed_gib)d",
                {
                    "free_gib": self.free_bytes / 2**30,
                    "needed_gib": DISK_SIZE_WARN_BYTES >> 30,
                },
            )
        ]
