"""Where messages go."""

from __future__ import annotations

import pytest

from kourou.client.producer.selectors import (
    FaultLatency,
    RoundRobin,
    avoid_for_ms,
    chosen_queue,
    queue_of_key,
)
from kourou.errors import BadRequest
from kourou.model.message import Message
from kourou.model.topic import MessageQueue

A = [MessageQueue("T", "a", number) for number in range(3)]
B = [MessageQueue("T", "b", number) for number in range(3)]


@pytest.mark.feature("F168")
def test_a_retry_leaves_out_the_last_broker():
    robin = RoundRobin(0)
    assert {robin.next_elsewhere(A + B, "a").broker_name for _ in range(20)} == {"b"}


def test_when_all_are_avoided_the_better_half_is_used():
    faults = FaultLatency()
    faults.record("a", 16_000, now_ms=0, failed=False)
    faults.record("b", 700, now_ms=0, failed=False)
    robin = RoundRobin(0)
    assert {robin.next_available(A + B, faults, 1).broker_name for _ in range(20)} == {"b"}


def test_avoidance_and_retry_together():
    faults = FaultLatency()
    faults.record("b", 700, now_ms=0, failed=True)
    queue = RoundRobin(0).next_available(A + B, faults, 1, last_broker_name="a")
    assert queue in A, "b is avoided, so the last broker is still the better one"


def test_one_key_one_queue():
    assert queue_of_key(A, "order-7") is queue_of_key(A, "order-7")
    spread = {queue_of_key(A, f"order-{number}") for number in range(50)}
    assert spread == set(A)


def test_the_key_whose_hash_is_the_smallest_integer_has_a_queue():
    assert queue_of_key(A, "polygenelubricants") in A


@pytest.mark.feature("F163")
def test_a_selector_may_not_invent_queues():
    with pytest.raises(BadRequest, match=", which is not a writable queue of the topic"):
        chosen_queue(A, lambda *_: B[0], Message("T", b"x"), None)


# -- RocketMQ's latency avoidance ------------------------------------------------------------------


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


@pytest.mark.parametrize("key", [5, b"order-7"])
def test_an_order_key_that_is_not_text_is_refused(key) -> None:
    with pytest.raises(BadRequest, match="it must be text"):
        queue_of_key(A, key)
