"""Rates and quantiles are computed as they are named."""

from __future__ import annotations

from kourou_bench.figures import quantiles, rates


def test_rates_are_per_second() -> None:
    messages, volume = rates("send", messages=1_000, size=2_000, took_ns=500_000_000)
    assert (messages.value, messages.unit) == (2_000, "msg/s")
    assert (volume.value, volume.unit) == (4, "MB/s")


def test_quantiles_are_those_of_the_ordered_durations() -> None:
    durations = [number * 1_000_000 for number in range(100, 0, -1)]
    median, late = quantiles("answer", durations)
    assert (median.name, median.value) == ("answer p50", 51)
    assert (late.name, late.value) == ("answer p99", 100)
    assert [figure.value for figure in quantiles("one", [3_000_000])] == [3, 3]
