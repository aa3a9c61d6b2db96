"""Measured values with name, unit and settings, and their output formats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

NS_IN_MS = 1_000_000
QUANTILES = ((0.5, "p50"), (0.99, "p99"))


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. Across runs only ratios of values of the same run are comparable."""

    name: str
    unit: str
    value: float

    def as_json(self, settings: Mapping[str, object]) -> str:
        """One JSON line."""
        return json.dumps(
            {
                "name": self.name,
                "unit": self.unit,
                "value": round(self.value, 4),
                "settings": dict(settings),
            }
        )

    def as_text(self) -> str:
        """One line of text."""
        digits = 0 if self.value >= 1_000 else 3
        return f"{self.name:<36} {self.value:>14,.{digits}f} {self.unit}"


def rates(name: str, messages: int, size: int, took_ns: int) -> Iterator[Figure]:
    """Messages per second and bytes of bodies per second."""
    seconds = took_ns / 1_000_000_000
    yield Figure(f"{name} rate", "msg/s", messages / seconds)
    yield Figure(f"{name} volume", "MB/s", messages * size / seconds / 1_000_000)


def quantiles(name: str, took_ns: Sequence[int]) -> Iterator[Figure]:
    """The usual quantiles of durations, in milliseconds."""
    ordered = sorted(took_ns)
    for share, label in QUANTILES:
        place = min(len(ordered) - 1, int(share * len(ordered)))
        yield Figure(f"{name} {label}", "ms", ordered[place] / NS_IN_MS)
