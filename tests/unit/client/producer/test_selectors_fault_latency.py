"""The table of RocketMQ's latency avoidance, and what a producer makes of it."""

from __future__ import annotations

import pytest

from kourou.client.producer.selectors import FaultLatency, avoid_for_ms


@pytest.mark.parametrize(
    ("latency_ms", "avoided_ms"),
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 30_000),
        (1000, 60_000),
        (2000, 120_000),
        (3000, 180_000),
        (14_999, 180_000),
        (15_000, 600_000),
        (90_000, 600_000),
    ],
)
def test_the_table(latency_ms, avoided_ms):
    assert avoid_for_ms(latency_ms) == avoided_ms


def test_a_slow_broker_is_avoided_until_its_time_is_up():
    faults = FaultLatency()
    faults.record("a", 600, now_ms=1_000, failed=False)
    assert not faults.available("a", 30_999)
    assert faults.available("a", 31_000)
    assert faults.available("b", 1_000)


def test_a_failure_counts_as_thirty_seconds_of_latency():
    faults = FaultLatency()
    faults.record("a", 3, now_ms=0, failed=True)
    assert not faults.available("a", 599_999)
    assert faults.available("a", 600_000)


def test_a_good_answer_clears_it():
    faults = FaultLatency()
    faults.record("a", 3, now_ms=0, failed=True)
    faults.record("a", 3, now_ms=10, failed=False)
    assert faults.available("a", 10)


def test_the_least_bad_half():
    faults = FaultLatency()
    for name, latency_ms in (("a", 15_000), ("b", 600), ("c", 2_000), ("d", 1_200)):
        faults.record(name, latency_ms, now_ms=0, failed=False)
    assert faults.least_bad(["a", "b", "c", "d"], 0) == ["b", "d"]
    assert faults.least_bad(["a"], 0) == ["a"]
    assert faults.least_bad([], 0) == []
