"""Statements inside a transaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from kourou.events.control_events import (
    EventLost,
    ProgressRecorded,
    Recorded,
    TopicPut,
    UnknownEvent,
)
from kourou.events.stream import Snapshot
from kourou.eventstore import stream_rows
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.event_store import EventStore
from kourou.eventstore.schema import REVISIONS
from kourou.model.topic import TopicConfig


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    database = Database("sqlite://")
    REVISIONS.bring_up_to_date(database)
    with database.writing() as connection:
        yield connection
    database.close()


def write(connection: sa.Connection, *recorded: Recorded) -> None:
    info = stream_rows.stream_for_update(connection, "s")
    stream_rows.insert_events(connection, "s", info, recorded)


def lost(offset: int, at_ms: int, size: int = 1) -> Recorded:
    return Recorded(offset, offset, at_ms, "a", "", "", EventLost("x" * size))


def test_a_snapshot_is_due_when_events_outgrow_the_last_one(
    connection: sa.Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stream_rows, "SNAPSHOT_AFTER_BYTES_MIN", 10)

    def due() -> bool:
        info = stream_rows.stream_info(connection, "s")
        assert info is not None
        return info.snapshot_due

    write(connection, lost(0, 1))
    assert due()
    # Bytes that do not compress, so that the snapshot is as large as it looks.
    body = random.Random(5).randbytes(1_000)
    stream_rows.insert_snapshot(connection, Snapshot("s", 1, 1, body))
    stored = connection.execute(
        sa.text("SELECT snapshot_bytes FROM streams WHERE name = 's'")
    ).scalar_one()
    assert stored > 900
    write(connection, lost(1, 2, stored - 100))
    assert not due()
    write(connection, lost(2, 2, 100))
    assert due()


def test_text_that_a_database_cannot_hold_is_made_holdable(connection: sa.Connection):
    foreign = UnknownEvent("T\0", "a\0b", b'{"type":"T\\u0000"}')
    write(connection, Recorded(0, 0, 0, "x\0", "y\0", "z\0", foreign))
    [read] = stream_rows.read_events(connection, "s", 0, 1)
    assert (read.actor, read.reason, read.trace_id) == ("x\ufffd", "y\ufffd", "z\ufffd")
    assert read.event == UnknownEvent("T\0", "a\ufffdb", foreign.body)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_was_decided_is_found_beside_much_progress(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """By its own index: the plan of the database says so."""
    url = (
        sqlite_url(tmp_path / "events.db")
        if kind == "sqlite"
        else request.getfixturevalue("postgres").new_database()
    )
    store = EventStore.open(url)
    progress = [
        Recorded(offset, -1, offset, "b", "", "", ProgressRecorded("g", {"T": {0: offset}}))
        for offset in range(2_000)
    ]
    store.append([*progress, Recorded(2_000, -1, 2_000, "b", "", "", TopicPut(TopicConfig("T")))])
    database = store._database
    if kind == "postgresql":
        with database.writing() as connection:
            connection.exec_driver_sql("ANALYZE")
    plans: list[str] = []

    def explain(connection, cursor, statement, parameters, context, executemany) -> None:
        if "LIMIT" in statement and not statement.startswith("EXPLAIN"):
            word = "EXPLAIN QUERY PLAN" if kind == "sqlite" else "EXPLAIN"
            rows = connection.exec_driver_sql(f"{word} {statement}", parameters)
            plans.append(str(rows.all()))

    sa.event.listen(database.engine, "before_cursor_execute", explain)
    for types in ((), ("TopicPut",)):
        assert [each.offset for each in store.history(types=types).entries] == [2_000]
    assert len(plans) == 2
    assert all("events_decided" in plan for plan in plans), plans
    store.close()
