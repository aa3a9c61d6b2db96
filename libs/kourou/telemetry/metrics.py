"""The metrics page of a process, in the text format of Prometheus.

A page is a snapshot of one moment. It is rendered on the thread that serves the request, which is
also the thread that updates the metrics.

State: none, except the counts of a Histogram (soft).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kourou.model.units import NS_PER_MS
from kourou.telemetry.metric_table import METRICS, MetricKind, MetricSpec

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SERIES_MAX = 50_000
"""Limit of series per metric; the rest is omitted.

More series than this come from a label that should not be one.
"""


Labels = Mapping[str, str]


class Histogram:
    """A histogram; `bounds` are the upper bounds of the buckets, without infinity."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds)), "bounds grow"
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    @classmethod
    def counted(cls, bounds: Sequence[float], counts: Sequence[int], total: float) -> Histogram:
        """Create a histogram from counts: one per bucket, the last one beyond all bounds."""
        made = cls(bounds)
        assert len(counts) == len(made._counts), "one count a bucket, and one beyond"
        made._counts = list(counts)
        made._total = total
        return made

    def observe(self, value: float, count: int = 1) -> None:
        """Record a value, `count` times."""
        self._counts[bisect.bisect_left(self._bounds, value)] += count
        self._total += value * count

    @property
    def total(self) -> float:
        """The sum of all values."""
        return self._total

    def buckets(self) -> list[tuple[str, int]]:
        """Return (upper bound, number of values up to it) pairs; the last bound is infinity."""
        found = []
        below = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else f"{bound:g}", below))
        return found


class Durations:
    """A histogram of durations, kept as integer nanoseconds; `bounds_ms` are the bucket bounds.

    One thread may write, any thread may read.
    """

    __slots__ = ("_bounds_ms", "_bounds_ns", "_counts", "_total_ns")

    def __init__(self, bounds_ms: Sequence[int]) -> None:
        self._bounds_ms = tuple(bounds_ms)
        self._bounds_ns = [bound * NS_PER_MS for bound in bounds_ms]
        self._counts = [0] * (len(self._bounds_ms) + 1)
        self._total_ns = 0

    def observe(self, duration_ns: int) -> None:
        """Record a duration."""
        self._counts[bisect.bisect_left(self._bounds_ns, duration_ns)] += 1
        self._total_ns += duration_ns

    def histogram(self) -> Histogram:
        """Return the durations recorded so far, in milliseconds."""
        return Histogram.counted(self._bounds_ms, self._counts, self._total_ns / NS_PER_MS)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples: (labels, value) pairs, all with the same label names.

    The metric table must contain its name and kind. If `about` is "", the table's description is
    used.
    """

    name: str
    kind: MetricKind
    about: str
    samples: Sequence[tuple[Labels, float | Histogram]]

    @classmethod
    def counter(
        cls, name: str, about: str = "", samples: Sequence[tuple[Labels, float]] = ()
    ) -> Family:
        """Create a family of counters, whose values only increase while the process lives."""
        return cls(name, MetricKind.COUNTER, about, samples)

    @classmethod
    def gauge(
        cls, name: str, about: str = "", samples: Sequence[tuple[Labels, float]] = ()
    ) -> Family:
        """Create a family of current values."""
        return cls(name, MetricKind.GAUGE, about, samples)

    @classmethod
    def histogram(
        cls, name: str, about: str = "", samples: Sequence[tuple[Labels, Histogram]] = ()
    ) -> Family:
        """Create a family of histograms."""
        return cls(name, MetricKind.HISTOGRAM, about, samples)


def expose(families: Iterable[Family], table: Mapping[str, MetricSpec] = METRICS) -> bytes:
    """Render the page.

    A name that is not in the metric table, or that has another kind there, is a bug.
    """
    # Imported here: a process whose page is never requested does not pay for the import.
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(list(families), table))
    return generate_latest(registry)


class _Collector:
    """Adapter for the Prometheus client, which calls `collect`."""

    def __init__(self, families: list[Family], table: Mapping[str, MetricSpec]) -> None:
        self._families = families
        self._table = table

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            spec = self._table.get(family.name)
            assert spec is not None, f"{family.name} is not in the table of metrics"
            assert spec.kind is family.kind, f"{family.name} is a {spec.kind.value}"
            about = family.about or spec.about
            yield _metric(family, f"{about} ({spec.unit})" if spec.unit else about)


def _metric(family: Family, about: str) -> Metric:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    samples = family.samples[:SERIES_MAX]
    names = list(samples[0][0]) if samples else []
    if family.kind is MetricKind.HISTOGRAM:
        histograms = HistogramMetricFamily(family.name, about, labels=names)
        for labels, value in samples:
            assert isinstance(value, Histogram)
            histograms.add_metric([labels[name] for name in names], value.buckets(), value.total)
        return histograms
    kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    plain = kind(family.name, about, labels=names)
    for labels, value in samples:
        assert not isinstance(value, Histogram)
        plain.add_metric([labels[name] for name in names], value)
    return plain
