"""Times, durations and counts as text."""

from __future__ import annotations

from datetime import UTC, datetime


def when(at_ms: int) -> str:
    """Return a time in UTC, to the second, independent of the machine's time zone."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer's clock may have any value
        return f"{at_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def duration(ms: int) -> str:
    """Return a duration in the largest unit that fits."""
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= 2 * size_ms:
            return f"{ms // size_ms} {unit}"
    return f"{ms} ms"


def count(number: int, what: str) -> str:
    """Return a number and a noun, in the plural if needed."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
