"""Units of time and size, and a time that does not come."""

from __future__ import annotations

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
NS_PER_MS = 1_000_000

NEVER_MS = 2**62
"""Later than every clock, also when an interval is added to it."""

MIB = 1 << 20
