"""Latency memory of a producer: which brokers to avoid for a while, as in RocketMQ.

Invariant: a broker is available when the monotonic time has reached `_Fault.until_ms`.

State: soft. A restarted producer avoids no broker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

LATENCY_MS = (50, 100, 550, 1000, 2000, 3000, 15_000)
AVOID_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
ISOLATED_LATENCY_MS = 30_000
"""The latency that a failed attempt counts as."""


def avoid_for_ms(latency_ms: int) -> int:
    """Return how long to avoid a broker that took `latency_ms` for its last reply."""
    row = bisect_right(LATENCY_MS, latency_ms) - 1
    return AVOID_MS[row] if row >= 0 else 0


@dataclass(slots=True)
class _Fault:
    latency_ms: int
    until_ms: int


class FaultLatency:
    """Latency memory of one producer; times are monotonic milliseconds."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}

    def record(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool) -> None:
        """Record the outcome of one attempt; a failure counts as 30 s of latency."""
        weighed_ms = ISOLATED_LATENCY_MS if failed else latency_ms
        self._faults[broker_name] = _Fault(latency_ms, now_ms + avoid_for_ms(weighed_ms))

    def available(self, broker_name: str, now_ms: int) -> bool:
        """Return whether this broker may be chosen now."""
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.until_ms

    def least_bad(self, broker_names: Iterable[str], now_ms: int) -> list[str]:
        """Return the better half of brokers that are all avoided, by (avoided until, latency).

        At least one broker is returned if any name is given.
        """
        ranked = sorted(set(broker_names), key=lambda name: (*self._badness(name, now_ms), name))
        return ranked[: (len(ranked) + 1) // 2]

    def _badness(self, broker_name: str, now_ms: int) -> tuple[int, int]:
        fault = self._faults.get(broker_name)
        if fault is None:
            return (0, 0)
        return (max(0, fault.until_ms - now_ms), fault.latency_ms)
