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


def test_one_line_an_interval_and_event(
    log: RateLimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        log.warning("frame-bad: bad %(number)d", {"number": 1})
    log.warning("frame-worse: 100 % worse")
    assert caplog.messages == ["frame-bad: bad 1", "frame-worse: 100 % worse"]
    clock.advance(INTERVAL_MS)
    log.warning("frame-bad: bad %(number)d", {"number": 2})
    assert caplog.messages[-1] == "frame-bad: bad 2 (and 4 more like this since)"
    assert caplog.records[-1].args == {"number": 2, "left_out": 4}
    clock.advance(INTERVAL_MS)
    log.warning("frame-bad: bad %(number)d", {"number": 3})
    assert caplog.messages[-1] == "frame-bad: bad 3"


def test_an_event_of_another_kind_is_logged_all_the_same(
    log: RateLimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        for peer in ("a", "b"):
            log.warning("frame-bad: bad from %(peer)s", {"peer": peer}, kind=peer)
    assert caplog.messages == ["frame-bad: bad from a", "frame-bad: bad from b"]
    clock.advance(INTERVAL_MS)
    log.warning("frame-bad: worse", kind="a")
    assert caplog.messages[-1] == "frame-bad: worse (and 1 more like this since)"


def test_memory_is_bounded(log: RateLimitedLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(KINDS_MAX + 5):
        log.warning("frame-bad: x", kind=str(number))
    assert len(log._last_ms) <= KINDS_MAX
    assert len(caplog.records) == KINDS_MAX + 5
