"""The statistics of filters since the start of the filter server, by group, name and version.

State: soft.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from kourou.model.filter import FilterKey
from kourou.model.limits import FILTER_VERSIONS_MAX, FILTERS_MAX
from kourou.telemetry.metric_table import FILTER_BOUNDS_US

VERSIONS_COUNTED_MAX = FILTERS_MAX * FILTER_VERSIONS_MAX


@dataclass(slots=True)
class VersionCounts:
    """The statistics of one version.

    Messages: `seen` were evaluated, `passed` and `denied` are the results; `errors` could not be
    evaluated, by kind; of these, `skipped` and `unfiltered` were handled by policy. `batches` went
    to workers, `micros` is the time inside the filter, `times` counts batches by microseconds for
    each message. `starts` of workers took `start_micros` together.
    """

    seen: int = 0
    passed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    unfiltered: int = 0
    batches: int = 0
    micros: int = 0
    times: list[int] = field(default_factory=lambda: [0] * (len(FILTER_BOUNDS_US) + 1))
    bytes_in: int = 0
    bytes_out: int = 0
    starts: int = 0
    start_micros: int = 0
    quarantines: int = 0
    last_kind: str = ""
    last_reason: str = ""
    last_failed_ms: int | None = None

    def judged(self, count: int, micros: int) -> None:
        """Count a batch."""
        self.batches += 1
        self.seen += count
        self.micros += micros
        self.times[bisect_left(FILTER_BOUNDS_US, micros / max(1, count))] += 1

    def failed(self, kind: str, reason: str, wall_ms: int) -> None:
        """Count a message, or a whole batch, that could not be evaluated."""
        self.errors[kind] += 1
        self.last_kind, self.last_reason, self.last_failed_ms = kind, reason, wall_ms


class FilterStatistics:
    """The statistics of every version since the start, and of pulls whose filter failed."""

    def __init__(self) -> None:
        self._counts: dict[tuple[FilterKey, int], VersionCounts] = {}
        self.pulls = 0
        self.pulls_failed: Counter[str] = Counter()

    def of(self, key: FilterKey, version: int) -> VersionCounts:
        """The statistics of one version; the oldest ones are dropped if there are too many."""
        found = self._counts.get((key, version))
        if found is None:
            if len(self._counts) >= VERSIONS_COUNTED_MAX:
                del self._counts[next(iter(self._counts))]
            found = self._counts[key, version] = VersionCounts()
        return found

    def all(self) -> list[tuple[FilterKey, int, VersionCounts]]:
        """The statistics of all versions."""
        return [(key, version, counts) for (key, version), counts in self._counts.items()]
