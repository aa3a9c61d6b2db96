"""A flood of one kind of trouble is one line, and the next line owns up to the rest."""

from __future__ import annotations

import logging

import pytest

from kourou.transport.rate_limited_log import INTERVAL_MS, KINDS_MAX, RateLimitedLog
from kourou_rigs.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> RateLimitedLog:
    return RateLimitedLog(logging.getLogger("test"), clock)


def test_one_line_an_interval_and_kind(
    log: RateLimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        log.warning("a", "bad %s", 1)
    log.warning("b", "worse")
    assert [record.getMessage() for record in caplog.records] == ["bad 1", "worse"]
    clock.advance(INTERVAL_MS)
    log.warning("a", "bad %s", 2)
    assert caplog.records[-1].getMessage() == "bad 2 (and 4 more like this since)"
    clock.advance(INTERVAL_MS)
    log.warning("a", "bad %s", 3)
    assert caplog.records[-1].getMessage() == "bad 3"


def test_memory_is_bounded(log: RateLimitedLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(KINDS_MAX + 5):
        log.warning(str(number), "x")
    assert len(log._last_ms) <= KINDS_MAX
    assert len(caplog.records) == KINDS_MAX + 5
