"""The line about what was consumed is written at the level that was asked for."""

from __future__ import annotations

import logging

from kourou.client.introspection.consume_statistics import NOT_MEASURED, ConsumeLog
from kourou_rigs.clock import ManualClock

NAME = "kourou.client.consume"


def test_nothing_is_measured_while_nobody_listens(caplog):
    caplog.set_level(logging.INFO, NAME)
    log = ConsumeLog(ManualClock(), logging.DEBUG)
    assert log.begin() == NOT_MEASURED
    log.consumed("one", NOT_MEASURED)
    assert not caplog.records
