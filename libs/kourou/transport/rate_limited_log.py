"""Rate-limited logging, so that a hostile or broken peer cannot flood the log.

State: soft.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kourou.clock import Clock

INTERVAL_MS = 10_000
KINDS_MAX = 1_024


class RateLimitedLog:
    """Logs one line per event and `interval_ms`; the next line counts the suppressed ones."""

    __slots__ = ("_clock", "_interval_ms", "_last_ms", "_left_out", "_log")

    def __init__(self, log: logging.Logger, clock: Clock, interval_ms: int = INTERVAL_MS) -> None:
        self._log = log
        self._clock = clock
        self._interval_ms = interval_ms
        self._last_ms: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def warning(
        self, text: str, fields: Mapping[str, object] | None = None, *, kind: str = ""
    ) -> None:
        """Log an event unless it was logged within the interval; see kourou.telemetry.logs.

        With `kind`, events with other kinds are logged all the same, such as those of other peers.
        """
        kind = f"{text.partition(':')[0]} {kind}"
        now_ms = self._clock.monotonic_ms()
        last_ms = self._last_ms.get(kind)
        if last_ms is not None and now_ms - last_ms < self._interval_ms:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        if last_ms is None and len(self._last_ms) >= KINDS_MAX:
            self._last_ms.clear()
            self._left_out.clear()
        self._last_ms[kind] = now_ms
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            text += " (and %(left_out)d more like this since)"
            fields = {**(fields or {}), "left_out": left_out}
        self._log.warning(text, *([fields] if fields else []))
