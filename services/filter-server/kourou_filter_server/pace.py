"""How many messages a filter is given at a time, by how long it took for others lately.

A quick filter gets large batches, which cost it and us least. A slow one gets few messages, and so
does one of which nothing is known: its row moves in small steps, its deadline, which grows with the
batch, comes soon, and the pulls behind it come one after the other and not all at once, when the
broker would have to serve them in one go while others wait.

State: soft.
"""

from __future__ import annotations

BATCH_US = 20_000
"""About so much of a filter's time goes into one batch ..."""

SLOW_MESSAGES = 32
"""... but so many messages may always: what one pull asks for, and enough that a filter which takes
long for a batch of any size does not end up with single messages."""

_KEEP = 4
"""A batch counts for a quarter, all before it for the rest."""


class Pace:
    """Of the version that runs. `most` messages are the limit for every filter."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._version = 0
        self._us = 0.0

    def judged(self, version: int, count: int, micros: int) -> None:
        """It judged a batch of `count` messages in so many microseconds of processor time."""
        if not count:
            return
        now_us = micros / count
        if version == self._version:
            now_us = self._us + (now_us - self._us) / _KEEP
        self._version, self._us = version, now_us

    def messages(self, version: int) -> int:
        """How many its next batch may have."""
        slow = min(SLOW_MESSAGES, self._most)
        if version != self._version:
            return slow
        return max(slow, min(self._most, int(BATCH_US / max(self._us, 0.01))))
