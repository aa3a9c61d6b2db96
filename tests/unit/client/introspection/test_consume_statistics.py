"""Rates are those of the last minute, failures those of the last hour."""

from __future__ import annotations

import pytest

from kourou.client.introspection.consume_statistics import (
    SAMPLE_MS,
    ConsumeRates,
    ConsumeStatistics,
)


def test_nothing_is_known_before_two_looks():
    statistics = ConsumeStatistics()
    statistics.of("T").consumed += 5
    assert statistics.rates() == {"T": ConsumeRates()}
    statistics.sample(0)
    assert statistics.rates() == {"T": ConsumeRates()}


def test_the_figures_of_a_minute():
    statistics = ConsumeStatistics()
    statistics.of("T")
    statistics.sample(0)
    sums = statistics.of("T")
    sums.pulls, sums.pull_ms, sums.pulled, sums.consumed, sums.failed = 4, 10, 200, 100, 20
    statistics.sample(SAMPLE_MS, [2, 4])
    assert statistics.rates()["T"] == ConsumeRates(
        pull_rt=2.5,
        pull_tps=20.0,
        consume_rt=3.0,
        consume_ok_tps=10.0,
        consume_failed_tps=2.0,
        consume_failed_msgs=20,
    )


@pytest.mark.parametrize(("samples", "failed"), [(7, 3), (359, 3), (361, 0)])
def test_what_is_older_than_a_minute_leaves_the_rates_and_later_the_hour(samples, failed):
    statistics = ConsumeStatistics()
    statistics.of("T")
    statistics.sample(0)
    statistics.of("T").failed += 3
    for number in range(1, samples + 1):
        statistics.sample(number * SAMPLE_MS)
    status = statistics.rates()["T"]
    assert status.consume_failed_tps == 0.0
    assert status.consume_failed_msgs == failed
