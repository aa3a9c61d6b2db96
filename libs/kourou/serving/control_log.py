"""Reads control events from the log, and logs an error for each one that is lost."""

from __future__ import annotations

import logging

from kourou.engine.ports import StoreView
from kourou.engine.sends import recorder as control_log
from kourou.events.control_events import Recorded

_log = logging.getLogger("kourou.broker")


def read_control_events(view: StoreView, offset: int, below: int) -> list[Recorded]:
    """See kourou.engine.sends.recorder."""
    return control_log.read_control_events(view, offset, below, _tell)


def _tell(text: str) -> None:
    _log.error("%s", text)
