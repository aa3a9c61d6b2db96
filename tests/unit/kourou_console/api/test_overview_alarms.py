"""Alarms and their thresholds."""

from __future__ import annotations

from kourou_console.metrics.alarms import AlarmThresholds
from kourou_console.metrics.sampler import Sampler
from kourou_rigs.console import ConsoleHere


def test_nothing_stands_and_the_thresholds_are_told(console: ConsoleHere) -> None:
    """At a cluster of its own: groups of other tests have dead letters."""
    console.run(console.gateway.part(Sampler).look())
    found = console.get("/v1/alarms").json
    assert found["items"] == []
    limits = AlarmThresholds()
    assert found["thresholds"]["disk_used_ratio"] == limits.disk_used_ratio
    assert found["thresholds"]["sampling_gap_ms"] == 15_000
