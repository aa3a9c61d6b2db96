"""The clocks, as a parameter: no other module of Kourou reads the machine's time.

Wall time (`now_ms`) stamps what is stored and shown. Monotonic time (`monotonic_ms`) determines
every timeout, lease and retry, so a clock step never makes a delivery or an expiry early.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """The clocks of a component; both return integer milliseconds."""

    def now_ms(self) -> int:
        """Wall time: milliseconds since 1970-01-01 UTC; may step backwards or forwards."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from an arbitrary start; never decreases."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic time in milliseconds."""
        return time.monotonic_ns() // 1_000_000


def boot_id() -> str:
    """The ID of the machine start that monotonic time counts from; "" if the system has none.

    Processes with the same ID may compare their monotonic times.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
