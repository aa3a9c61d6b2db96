"""The line that says what was consumed and how long it took (F375).

Lives here: when that time begins, and the line. May not live here: what became of the message
(kourou.client.push_consumer logs failures), calling handlers.

The line's level is DEBUG, or INFO with the setting `log_messages`. Nothing is measured while nobody
listens to that level.

State: none.
"""

from __future__ import annotations

import logging
from typing import Any

from kourou.clock import Clock

_log = logging.getLogger("kourou.client.consume")

NOT_MEASURED = -1


class ConsumeLog:
    """One consumer's lines; callable from any thread."""

    __slots__ = ("_clock", "_level")

    def __init__(self, clock: Clock, level: int) -> None:
        self._clock = clock
        self._level = level

    def begin(self) -> int:
        """When consuming begins, monotonic ms; NOT_MEASURED when the line would not be written."""
        return self._clock.monotonic_ms() if _log.isEnabledFor(self._level) else NOT_MEASURED

    def consumed(self, item: Any, begun_ms: int) -> None:
        """`item`, a message or a list of them, was consumed; `begun_ms` is what `begin` gave."""
        if begun_ms == NOT_MEASURED:
            return
        elapsed_ms = self._clock.monotonic_ms() - begun_ms
        for message in item if isinstance(item, list) else (item,):
            _log.log(self._level, "consumed %s in %d ms", message, elapsed_ms)
