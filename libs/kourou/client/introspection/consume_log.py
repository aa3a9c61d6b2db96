"""The log line for each consumed message, and the measurement of processing times.

The line's level is DEBUG, or INFO with the setting `log_messages`. While that level is disabled,
only the messages that a runner selects are measured, for the average
(kourou.client.introspection.consume_statistics).

State: soft: the measured times that were not collected yet.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from kourou.clock import Clock

_log = logging.getLogger("kourou.client.consume")

NOT_MEASURED = -1
MEASURED_KEPT = 1_024
"""The number of times kept for the average; if they are not collected, older ones are dropped."""
SELDOM = 63
"""A busy worker measures one message in 64: those whose count has these bits 0."""


class ConsumeLog:
    """Log lines and processing times of one consumer; callable from any thread."""

    __slots__ = ("_clock", "_level", "_times")

    def __init__(self, clock: Clock, level: int) -> None:
        self._clock = clock
        self._level = level
        self._times: deque[int] = deque(maxlen=MEASURED_KEPT)

    def begin(self, measured: bool = False) -> int:
        """Return the start in monotonic ms, or NOT_MEASURED if no log line is written.

        With `measured` the start is always returned.
        """
        if measured or _log.isEnabledFor(self._level):
            return self._clock.monotonic_ms()
        return NOT_MEASURED

    def consumed(self, item: Any, begun_ms: int) -> None:
        """Record that `item`, a message or a list, was consumed; `begun_ms` is from `begin`."""
        if begun_ms == NOT_MEASURED:
            return
        elapsed_ms = self._clock.monotonic_ms() - begun_ms
        self._times.append(elapsed_ms)
        if _log.isEnabledFor(self._level):
            for message in item if isinstance(item, list) else (item,):
                _log.log(self._level, "consumed %s in %d ms", message, elapsed_ms)

    def collect(self) -> list[int]:
        """Return the times in ms that were measured since the last call."""
        times, found = self._times, list[int]()
        while times:
            found.append(times.popleft())
        return found
