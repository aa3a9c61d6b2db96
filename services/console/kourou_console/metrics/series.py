"""Metrics of the last hour, as columns of numbers.

A round is a row: its time, and an optional number for each series. A series is one column of
doubles. If two rounds are too far apart, an empty row is returned between them, so that a chart
shows the gap.

State: soft; lost with the process. Memory: at most CONSOLE_SAMPLES_MAX doubles, 12 MB; 720 rounds
of 5 s leave room for two thousand series.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kourou.model.limits import CONSOLE_ROUNDS_MAX, CONSOLE_SAMPLES_MAX

KEEP_MS = 3_600_000
GAP = 1.9
"""The distance between two rounds, in intervals, from which on one counts as missing."""

Key = tuple[str, str]
"""The metric's name, and its owner: "" for the suite, `broker:NAME`, `group:NAME`."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Times, and a list of values of the same length for each requested key; None: unknown."""

    at_ms: list[int]
    values: list[list[float | None]]


class Samples:
    """The samples of the last hour, in rounds of `interval_ms`."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._rounds = max(2, min(CONSOLE_ROUNDS_MAX, KEEP_MS // interval_ms))
        self.series_max = CONSOLE_SAMPLES_MAX // self._rounds
        self._at = array("q", bytes(8 * self._rounds))
        self._columns: dict[Key, array[float]] = {}
        self._last: dict[Key, int] = {}
        self._next = 0
        self._count = 0
        #: The number of series that found no room.
        self.refused = 0

    def note(self, at_ms: int, values: Mapping[Key, float | None]) -> None:
        """Add a round. A series that is missing or None has no value in it."""
        place = self._next
        self._at[place] = at_ms
        for every in self._columns.values():
            every[place] = math.nan
        for key, value in values.items():
            if value is None or (column := self._column(key)) is None:
                continue
            column[place] = value
            self._last[key] = at_ms
        self._next = (place + 1) % self._rounds
        self._count = min(self._count + 1, self._rounds)
        self._forget(self._at[self._oldest()])

    def keys(self) -> list[Key]:
        """All series with a value."""
        return sorted(self._columns)

    def read(self, keys: Sequence[Key], since_ms: int = 0) -> Columns:
        """The rounds from `since_ms` on, oldest first."""
        order = [(self._oldest() + step) % self._rounds for step in range(self._count)]
        order = [place for place in order if self._at[place] >= since_ms]
        rows: list[int | None] = []
        times: list[int] = []
        for place in order:
            at_ms = self._at[place]
            if times and at_ms - times[-1] > GAP * self._interval_ms:
                times.append(times[-1] + self._interval_ms)
                rows.append(None)
            times.append(at_ms)
            rows.append(place)
        return Columns(times, [self._values(self._columns.get(key), rows) for key in keys])

    def latest(self, key: Key, *, since_ms: int = 0) -> float | None:
        """The last round's value; None if that round is older than `since_ms`."""
        if not self._count:
            return None
        place = (self._next - 1) % self._rounds
        column = self._columns.get(key)
        if column is None or self._at[place] < since_ms or math.isnan(column[place]):
            return None
        return column[place]

    def _oldest(self) -> int:
        return (self._next - self._count) % self._rounds

    @staticmethod
    def _values(column: array[float] | None, rows: Iterable[int | None]) -> list[float | None]:
        if column is None:
            return [None for _ in rows]
        found: list[float | None] = []
        for place in rows:
            value = math.nan if place is None else column[place]
            found.append(None if math.isnan(value) else value)
        return found

    def _column(self, key: Key) -> array[float] | None:
        column = self._columns.get(key)
        if column is not None:
            return column
        if len(self._columns) >= self.series_max:
            self.refused += 1
            return None
        column = self._columns[key] = array("d", [math.nan]) * self._rounds
        return column

    def _forget(self, oldest_ms: int) -> None:
        """Remove series without any value left."""
        for key in [key for key, at_ms in self._last.items() if at_ms < oldest_ms]:
            del self._last[key]
            del self._columns[key]
