"""The line about what was consumed is written at the level that was asked for."""

from __future__ import annotations

import logging

import pytest

from kourou.client.introspection.consume_statistics import NOT_MEASURED, ConsumeLog
from kourou_rigs.clock import ManualClock

NAME = "kourou.client.consume"


@pytest.mark.feature("F375")
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_a_line_for_each_message_with_its_time(level, caplog):
    caplog.set_level(level, NAME)
    clock = ManualClock()
    log = ConsumeLog(clock, level)
    started_ms = log.begin()
    clock.advance(7)
    log.consumed("one", started_ms)
    log.consumed(["two", "three"], started_ms)
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [
        (level, f"consumed {name} in 7 ms") for name in ("one", "two", "three")
    ]


def test_nothing_is_measured_while_nobody_listens(caplog):
    caplog.set_level(logging.INFO, NAME)
    log = ConsumeLog(ManualClock(), logging.DEBUG)
    assert log.begin() == NOT_MEASURED
    log.consumed("one", NOT_MEASURED)
    assert not caplog.records
