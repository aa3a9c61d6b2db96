"""The line that says what was consumed and how long it took (F375), and how long it takes at all.

The line's level is DEBUG, or INFO with the setting `log_messages`. While nobody listens to that
level only some messages are measured, those that a runner points out, for the average
(kourou.client.consume_statistics).

State: soft: the measured times that nobody has collected yet.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from kourou.clock import Clock

_log = logging.getLogger("kourou.client.consume")

NOT_MEASURED = -1
MEASURED_KEPT = 1_024
"""Times kept for the average; when nobody collects them the older ones are forgotten."""
SELDOM = 63
"""A busy worker measures one message in 64: a count has these bits 0."""


class ConsumeLog:
    """One consumer's lines and times; callable from any thread."""

    __slots__ = ("_clock", "_level", "_times")

    def __init__(self, clock: Clock, level: int) -> None:
        self._clock = clock
        self._level = level
        self._times: deque[int] = deque(maxlen=MEASURED_KEPT)

    def begin(self, measured: bool = False) -> int:
        """When consuming begins, monotonic ms; NOT_MEASURED when nobody wants to know."""
        if measured or _log.isEnabledFor(self._level):
            return self._clock.monotonic_ms()
        return NOT_MEASURED

    def consumed(self, item: Any, begun_ms: int) -> None:
        """`item`, a message or a list of them, was consumed; `begun_ms` is what `begin` gave."""
        if begun_ms == NOT_MEASURED:
            return
        elapsed_ms = self._clock.monotonic_ms() - begun_ms
        self._times.append(elapsed_ms)
        if _log.isEnabledFor(self._level):
            for message in item if isinstance(item, list) else (item,):
                _log.log(self._level, "consumed %s in %d ms", message, elapsed_ms)

    def collect(self) -> list[int]:
        """The measured times in ms since the last question."""
        times, found = self._times, list[int]()
        while times:
            found.append(times.popleft())
        return found
