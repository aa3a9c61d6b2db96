"""Opening and closing; what every store promises is in tests/contract/test_event_store.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.engine.control import CONTROL, ControlState, evolve
from kourou.errors import Corrupt, DecodeError, MetadataUnavailable
from kourou.events.control_events import Recorded, TopicPut
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.event_store import READ_EVENTS_MAX, EventStore
from kourou.eventstore.schema import events
from kourou.model.topic import TopicConfig


def some(count: int) -> list[Recorded]:
    return [
        Recorded(offset, offset, offset, "a", "", "", TopicPut(TopicConfig(f"T{offset % 7}")))
        for offset in range(count)
    ]


def test_a_database_that_goes_away_is_unavailable_and_comes_back(tmp_path: Path):
    path = tmp_path / "events.db"
    store = EventStore.at(path)
    store.append(some(3))
    store.close()
    away = path.rename(tmp_path / "away.db")
    path.mkdir()
    with pytest.raises(MetadataUnavailable):
        store.append(some(4))
    path.rmdir()
    away.rename(path)
    assert store.append(some(4)) == 1
    store.close()


def test_a_long_stream_is_loaded_in_pieces():
    store = EventStore.open("sqlite://")
    written = some(READ_EVENTS_MAX * 2 + 1)
    store.append(written)
    state = ControlState()
    for each in written:
        evolve(state, each)
    assert store.load(CONTROL) == (state, len(written))
    store.close()


def changed(tmp_path: Path, statement: str) -> EventStore:
    """A store of ten events in which somebody ran a statement."""
    store = EventStore.at(tmp_path / "events.db")
    store.append(some(10))
    database = Database(sqlite_url(tmp_path / "events.db"))
    with database.writing() as connection:
        connection.exec_driver_sql(statement)
    database.close()
    return store


@pytest.mark.parametrize("offset", [4, 9])
def test_a_missing_row_is_noticed_when_loading(tmp_path: Path, offset: int):
    store = changed(tmp_path, f'DELETE FROM {events.name} WHERE "offset" = {offset}')
    with pytest.raises(Corrupt, match="lacks events"):
        store.load(CONTROL)
    store.close()


def test_a_body_that_somebody_edited_is_corrupt_and_no_crash(tmp_path: Path):
    store = changed(tmp_path, f"UPDATE {events.name} SET body = '{{}}' WHERE \"offset\" = 4")
    with pytest.raises(DecodeError):
        store.load(CONTROL)
    store.close()
