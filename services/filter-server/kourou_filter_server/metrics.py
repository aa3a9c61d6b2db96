"""The metrics (/metrics) and statistics (/statistics) of a filter server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from kourou.model.filter import FilterFailure
from kourou.service.protocol_server import ProtocolServers
from kourou.telemetry.metric_table import FILTER_BOUNDS_US
from kourou.telemetry.metrics import Family, Histogram, Labels
from kourou_filter_server.core import FilterCore
from kourou_filter_server.statistics import VersionCounts

Base = Mapping[str, str]
"""The labels of every sample."""


def filter_families(
    base: Base, core: FilterCore, protocols: ProtocolServers, zygotes_started: int
) -> Iterator[Family]:
    """The metrics of one filter server, except for its spans."""
    yield from _by_version(base, core)
    counts = core.statistics
    yield Family.counter("kourou_filter_pulls_total", "", [(base, counts.pulls)])
    # Counters start at 0, so that the first failure is visible as an increase.
    by_kind = {**{kind.value: 0 for kind in FilterFailure}, **counts.pulls_failed}
    failed = [({"kind": kind, **base}, count) for kind, count in by_kind.items()]
    yield Family.counter("kourou_filter_pulls_failed_total", "", failed)
    yield Family.gauge("kourou_filter_pulls_held", "", [(base, len(core.pulls))])
    yield Family.gauge("kourou_filter_waiting_bytes", "", [(base, core.pulls.judged_bytes)])
    ahead = core.pulls.ahead
    yield Family.counter("kourou_filter_pulls_ahead_total", "", [(base, ahead.used)])
    yield Family.gauge("kourou_filter_ahead_bytes", "", [(base, ahead.kept_bytes)])
    yield Family.gauge("kourou_filter_workers", "", [(base, len(core.slots))])
    yield Family.gauge("kourou_filter_workers_busy", "", [(base, core.slots.busy)])
    yield Family.counter("kourou_filter_zygotes_total", "", [(base, zygotes_started)])
    yield Family.gauge("kourou_filter_registered", "", [(base, int(core.registering.registered))])
    yield from protocols.families(base)


def _by_version(base: Base, core: FilterCore) -> Iterator[Family]:
    every: list[tuple[Labels, VersionCounts]] = []
    strikes: list[tuple[Labels, float]] = []
    quarantined: list[tuple[Labels, float]] = []
    for key, version, counts in core.statistics.all():
        labels = {"consumer_group": key[0], "filter": key[1], "version": str(version), **base}
        every.append((labels, counts))
        strikes.append((labels, core.discipline.strikes(key, version)))
        quarantined.append((labels, int(core.catalogue.is_quarantined(key, version))))

    def counter(name: str, figure: Callable[[VersionCounts], int]) -> Family:
        samples = [(labels, figure(counts)) for labels, counts in every]
        return Family.counter(f"kourou_python_filter_{name}_total", "", samples)

    yield counter("seen", lambda counts: counts.seen)
    yield counter("passed", lambda counts: counts.passed)
    yield counter("skipped", lambda counts: counts.skipped)
    yield counter("unfiltered", lambda counts: counts.unfiltered)
    yield counter("bytes_in", lambda counts: counts.bytes_in)
    yield counter("bytes_out", lambda counts: counts.bytes_out)
    yield counter("starts", lambda counts: counts.starts)
    errors = [
        ({**labels, "kind": kind}, count)
        for labels, counts in every
        for kind, count in counts.errors.items()
    ]
    yield Family.counter("kourou_python_filter_errors_total", "", errors)
    times = [
        (labels, Histogram.counted(FILTER_BOUNDS_US, counts.times, counts.micros))
        for labels, counts in every
    ]
    yield Family.histogram("kourou_python_filter_message_time", "", times)
    yield Family.gauge("kourou_python_filter_strikes", "", strikes)
    yield Family.gauge("kourou_python_filter_quarantined", "", quarantined)


def filter_statistics(core: FilterCore) -> dict[str, Any]:
    """The statistics in JSON form."""
    registering = core.registering
    return {
        "broker": registering.broker_name,
        "trouble": registering.trouble,
        "pulls": {
            "held": len(core.pulls),
            "waiting_bytes": core.pulls.judged_bytes,
            "arrived": core.statistics.pulls,
            "answered_ahead": core.pulls.ahead.used,
            "ahead_bytes": core.pulls.ahead.kept_bytes,
            "failed": dict(core.statistics.pulls_failed),
        },
        "workers": {
            "now": len(core.slots),
            "busy": core.slots.busy,
            "wanted": core.slots.waiting,
        },
        "filters_version": core.catalogue.version,
        "dry_runs": len(core.trials),
        "filters": [msgspec.to_builtins(one) for one in core.figures()],
    }
