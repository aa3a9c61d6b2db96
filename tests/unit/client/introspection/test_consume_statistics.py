"""Rates are those of the last minute, failures those of the last hour."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from kourou.client.introspection.consume_statistics import (
    NOT_MEASURED,
    SAMPLE_MS,
    ConsumeLog,
    ConsumeRates,
    ConsumeStatistics,
    StuckWatch,
)
from kourou_rigs.clock import ManualClock


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


# -- handlers that run too long --------------------------------------------------------------------


def item(attempt: int = 1) -> SimpleNamespace:
    return SimpleNamespace(attempt=attempt)


def test_an_item_is_found_once_when_its_time_is_over():
    watch, slow = StuckWatch(100), item()
    assert watch.check([slow], 1_000) == []
    assert watch.check([slow], 1_099) == []
    assert watch.check([slow], 1_100) == [slow]
    assert watch.check([slow], 9_000) == []


def test_what_ended_meanwhile_is_forgotten():
    watch, one = StuckWatch(100), item()
    watch.check([one], 0)
    watch.check([], 50)
    assert watch.check([one], 100) == [], "it runs again, and only since now"
    assert watch.check([one], 200) == [one]


def test_the_next_attempt_starts_again():
    watch, one = StuckWatch(100), item()
    watch.check([one], 0)
    one.attempt += 1
    assert watch.check([one], 100) == []


def test_lists_are_watched_as_one():
    watch, batch = StuckWatch(100), [item(), item()]
    watch.check([batch], 0)
    assert watch.check([batch], 100) == [batch]


# -- the log of what was consumed ------------------------------------------------------------------


NAME = "kourou.client.consume"


def test_nothing_is_measured_while_nobody_listens(caplog):
    caplog.set_level(logging.INFO, NAME)
    log = ConsumeLog(ManualClock(), logging.DEBUG)
    assert log.begin() == NOT_MEASURED
    log.consumed("one", NOT_MEASURED)
    assert not caplog.records
