"""The demo's second act: the day of the year with the most cancelled flights.

State: soft.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kourou_demo.boarding import board
from kourou_demo.departures import depart
from kourou_demo.flights import Event, Flight
from kourou_demo.reminders import remind
from kourou_demo.stage import Stage
from kourou_demo.tickets import sell

LOG = "kourou.client.consume"
"""The logger on which clients report failing handlers; here hundreds fail on purpose."""


def worst_day(events: Sequence[Event]) -> tuple[str, list[Flight]]:
    """The date with the most cancelled flights (the earliest of several), and its flights."""
    decode = msgspec.json.Decoder(Flight).decode
    by_date: dict[str, list[Flight]] = {}
    for event in events:
        by_date.setdefault(event.date, []).append(decode(event.body))
    date = min(by_date, key=lambda day: (-len(cancelled(by_date[day])), day))
    return date, by_date[date]


def departed(flights: Sequence[Flight]) -> list[Flight]:
    """The flights that departed."""
    return [flight for flight in flights if flight.departure_delay is not None]


def cancelled(flights: Sequence[Flight]) -> list[Flight]:
    """The flights that were cancelled."""
    return [flight for flight in flights if flight.departure_delay is None]


async def play(stage: Stage, date: str) -> None:
    """Run all parts of the act."""
    count = len(stage.departed) + len(stage.cancelled)
    stage.view.chapter(
        f"act 2, the worst day: {date}, {count:,} flights, {len(stage.cancelled)} cancelled"
    )
    with _log_aside(stage.folder / "second-act.log"):
        for part in (board, depart, remind, sell):
            await part(stage)


@contextmanager
def _log_aside(path: Path) -> Iterator[None]:
    """Write the consumers' log to a file instead of the terminal."""
    log = logging.getLogger(LOG)
    handler = logging.FileHandler(path, encoding="utf-8")
    was = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = was
        log.removeHandler(handler)
        handler.close()
