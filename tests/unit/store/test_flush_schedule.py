from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.broker.config import BrokerSettings
from kourou.broker.part_settings import log_flush_of, queue_flush_of
from kourou.store.flush_schedule import PAGE_BYTES, WOKEN_PAUSE_MS, FlushPolicy, FlushSchedule

COMMIT_LOG = replace(log_flush_of(BrokerSettings()), timed=True)
CONSUME_QUEUE = queue_flush_of(BrokerSettings())


@pytest.mark.feature("F097", "F099", "F100")
def test_four_pages_are_flushed_every_half_second() -> None:
    schedule = FlushSchedule(COMMIT_LOG, 0)
    assert not schedule.due(499, 1 << 30)
    assert schedule.due(500, 4 * PAGE_BYTES)
    schedule.flushed(510)
    assert not schedule.due(999, 1 << 30)
    assert schedule.due(1000, 1 << 30)


@pytest.mark.feature("F100")
def test_fewer_pages_wait() -> None:
    schedule = FlushSchedule(COMMIT_LOG, 0)
    for now_ms in range(500, 10_000, 500):
        assert not schedule.due(now_ms, 4 * PAGE_BYTES - 1)


@pytest.mark.feature("F101")
def test_after_ten_seconds_whatever_little_is_flushed() -> None:
    schedule = FlushSchedule(COMMIT_LOG, 0)
    assert not schedule.due(9_500, 1)
    assert schedule.due(10_000, 1)
    schedule.flushed(10_001)
    assert not schedule.due(20_000, 1)
    assert schedule.due(20_500, 1)


def test_a_flush_that_did_not_succeed_is_tried_at_the_next_look() -> None:
    schedule = FlushSchedule(COMMIT_LOG, 0)
    assert schedule.due(10_000, 1)
    assert not schedule.due(10_499, 1)
    assert schedule.due(10_500, 1)


def test_queues_are_more_patient() -> None:
    schedule = FlushSchedule(CONSUME_QUEUE, 0)
    assert not schedule.due(999, 1 << 20)
    assert schedule.due(1_000, 2 * PAGE_BYTES)
    assert not schedule.due(59_000, 1)
    assert schedule.due(60_000, 1)


@pytest.mark.feature("F098")
def test_an_append_wakes_the_flush_by_the_same_rule_unless_it_is_timed() -> None:
    timed = FlushSchedule(COMMIT_LOG, 0)
    wakeable = FlushSchedule(replace(COMMIT_LOG, timed=False), 0)
    for now_ms, dirty_bytes, expected in (
        (20, 0, False),
        (20, 4 * PAGE_BYTES - 1, False),
        (20, 4 * PAGE_BYTES, True),
        (9_999, 1, False),
        (10_000, 1, True),
    ):
        assert wakeable.woken(now_ms, dirty_bytes) is expected
        assert not timed.woken(now_ms, dirty_bytes)
    wakeable.flushed(10_000)
    assert not wakeable.woken(10_001, 1)


def test_after_a_long_flush_the_clock_starts_none_for_a_while() -> None:
    schedule = FlushSchedule(CONSUME_QUEUE, 0)
    schedule.flushed(2_000, rest_ms=5_000)
    assert not schedule.due(6_999, 1 << 20)
    assert schedule.due(7_000, 1 << 20)
    schedule.flushed(7_000)
    assert schedule.due(8_000, 1 << 20), "once only"


def test_appends_right_after_a_flush_share_the_next_one() -> None:
    schedule = FlushSchedule(FlushPolicy(500, 4, 10_000, timed=False), 0)
    schedule.flushed(100)
    assert not schedule.woken(100 + WOKEN_PAUSE_MS - 1, 1 << 20)
    assert schedule.woken(100 + WOKEN_PAUSE_MS, 1 << 20)
