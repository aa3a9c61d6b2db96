"""The batch size of a filter, by its recent speed.

A fast filter gets large batches, which have the least overhead. A slow filter gets small ones, and
so does a new version whose speed is unknown. Small batches let its queue advance in small steps,
keep its deadline short (the deadline grows with the batch), and spread the pulls behind it over
time, so that the broker does not have to serve them all at once.

State: soft.
"""

from __future__ import annotations

BATCH_US = 20_000
"""The target for the time of a filter in one batch."""

SLOW_MESSAGES = 32
"""The minimum batch size: what one pull asks for. It keeps a filter that needs long for a batch of
any size from getting single messages.
"""

_KEEP = 4
"""A batch has a weight of a quarter in the average, all earlier ones the rest."""


class Pace:
    """The speed of the running version. `most` is the maximum batch size of every filter."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._version = 0
        self._us = 0.0

    def judged(self, version: int, count: int, micros: int) -> None:
        """Record a batch: `count` messages in `micros` µs of processor time."""
        if not count:
            return
        now_us = micros / count
        if version == self._version:
            now_us = self._us + (now_us - self._us) / _KEEP
        self._version, self._us = version, now_us

    def messages(self, version: int) -> int:
        """The size of its next batch."""
        slow = min(SLOW_MESSAGES, self._most)
        if version != self._version:
            return slow
        return max(slow, min(self._most, int(BATCH_US / max(self._us, 0.01))))
