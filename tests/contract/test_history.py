"""What is told of the past, whatever database it comes from: SQLite and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.engine.admin.history import (
    EventFound,
    EventQuestion,
    HistoryFound,
    HistoryQuestion,
    Question,
    StateFound,
    StateQuestion,
    state_body,
)
from kourou.engine.control import CONTROL, ControlState, evolve
from kourou.errors import Code, Corrupt, MetadataUnavailable, Rejected
from kourou.events.control_events import (
    Event,
    GroupDeleted,
    GroupPut,
    OffsetsReset,
    ProgressRecorded,
    QueueLocksChanged,
    Recorded,
    SettingChanged,
    TopicDeleted,
    TopicPut,
)
from kourou.eventstore.database import sqlite_url
from kourou.eventstore.event_store import EventStore, answer
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.bodies.broker_bodies import EventView, decode_event_views
from kourou_rigs.postgres import PostgresServer

ORDERS = TopicConfig("orders", 4, 4)
WIDER = TopicConfig("orders", 8, 8)
TILL = GroupConfig("till")
EVENTS: list[Event] = [
    TopicPut(ORDERS),  # 0
    GroupPut(TILL),  # 1
    ProgressRecorded("till", {"orders": {0: 5, 3: 7}, "bills": {0: 2}}),  # 2
    TopicPut(WIDER, ORDERS),  # 3
    SettingChanged("traceOn", False),  # 4
    OffsetsReset("till", "orders", {0: 1}, {0: 5}),  # 5
    GroupDeleted(TILL, remove_offset=True),  # 6
    ProgressRecorded("late", {"orders": {1: 9}}),  # 7
    TopicDeleted(WIDER, {0: 90}),  # 8
]
LOCKED = QueueLocksChanged("till", {"orders": {0: "client-1"}})


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        made: str = request.getfixturevalue("postgres").new_database()
        return made
    return sqlite_url(tmp_path / "events.db")


@pytest.fixture
def store(url: str) -> Iterator[EventStore]:
    opened = EventStore.open(url, "DefaultCluster/broker-a/0")
    yield opened
    opened.close()


def recorded(offset: int, event: Event, undoes: int | None = None) -> Recorded:
    return Recorded(offset, offset * 300, 1_000 + 10 * offset, "ann", "why", "", event, undoes)


@pytest.fixture
def filled(store: EventStore) -> EventStore:
    store.append([recorded(offset, event) for offset, event in enumerate(EVENTS)])
    return store


def state_after(count: int) -> ControlState:
    state = ControlState()
    for offset, event in enumerate(EVENTS[:count]):
        evolve(state, recorded(offset, event))
    return state


def history(store: EventStore, question: HistoryQuestion) -> tuple[list[EventView], HistoryFound]:
    found = answer(store, question, 0)
    assert isinstance(found, HistoryFound)
    return decode_event_views(found.body), found


def offsets(store: EventStore, aggregate: str = "", **named: object) -> list[int]:
    question = HistoryQuestion(aggregate, **{"limit": 100, **named})
    return [each.offset for each in history(store, question)[0]]


def state(store: EventStore, aggregate: str = "", **named: int) -> StateFound:
    found = answer(store, StateQuestion(aggregate, **named), 0)
    assert isinstance(found, StateFound)
    return found


# -- history --------------------------------------------------------------------------------------


def test_the_history_of_one_aggregate_and_of_all(filled: EventStore):
    assert offsets(filled, "topic/orders") == [8, 3, 0]
    assert offsets(filled, "group/till") == [6, 1]
    assert offsets(filled, "progress/till") == [5, 2]
    assert offsets(filled, "setting/traceOn") == [4]
    assert offsets(filled, "topic/Orders") == []
    assert offsets(filled) == [8, 6, 5, 4, 3, 1, 0], "progress is not decided but recorded"
    assert offsets(filled, types=frozenset({"ProgressRecorded"})) == [7, 2]
    assert offsets(filled, types=frozenset({"ProgressRecorded", "GroupPut"})) == [7, 2, 1]
    assert offsets(filled, types=frozenset({"TopicPut", "TopicDeleted"})) == [8, 3, 0]
    assert offsets(filled, "progress/till", types=frozenset({"OffsetsReset"})) == [5]


def test_locks_are_returned_when_they_are_requested(store: EventStore):
    store.append([recorded(0, TopicPut(ORDERS)), recorded(1, LOCKED), recorded(2, TopicPut(WIDER))])
    assert offsets(store) == [2, 0], "nobody decides them"
    assert offsets(store, "locks/till") == [1]
    assert offsets(store, types=frozenset({"QueueLocksChanged"})) == [1]


def test_a_page_says_how_to_go_on(filled: EventStore):
    seen: list[int] = []
    before: int | None = None
    pages = 0
    while True:
        page, found = history(filled, HistoryQuestion("", 2, before))
        seen += [each.offset for each in page]
        assert (found.lost_before, found.end) == (0, len(EVENTS))
        before, pages = found.before, pages + 1
        if before is None:
            break
        assert before == seen[-1]
    assert (seen, pages) == ([8, 6, 5, 4, 3, 1, 0], 4)
    assert history(filled, HistoryQuestion("topic/orders", 3))[1].before is None


def test_history_until_an_instant(filled: EventStore):
    assert offsets(filled, until_ms=1_030) == [3, 1, 0]
    assert offsets(filled, until_ms=1_039) == [3, 1, 0]
    assert offsets(filled, until_ms=1_030, before=2) == [1, 0]
    assert offsets(filled, until_ms=1_020, before=9) == [1, 0]
    assert offsets(filled, "progress/till", until_ms=1_020) == [2]
    assert offsets(filled, until_ms=999) == []


def test_large_events_make_short_pages_and_none_is_lost(filled: EventStore):
    sizes = {each.offset: len(each.event) for each in history(filled, HistoryQuestion("", 9))[0]}
    room = sizes[8] + sizes[6]
    page = filled.history(limit=9, size_max=room)
    assert ([each.offset for each in page.entries], page.cut) == ([8, 6], True)
    page = filled.history(limit=9, size_max=1)
    assert ([each.offset for each in page.entries], page.cut) == ([8], True)
    page = filled.history(limit=9, size_max=1, before=1)
    assert ([each.offset for each in page.entries], page.cut) == ([0], False)


def test_what_an_event_takes_back_is_kept(filled: EventStore):
    filled.append([recorded(9, TopicPut(WIDER), 8)])
    newest = history(filled, HistoryQuestion("topic/orders", 1))[0][0]
    assert (newest.offset, newest.undoes, newest.actor, newest.reason) == (9, 8, "ann", "why")


# -- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot_at", [None, 0, 4, 9])
def test_the_state_after_every_event_and_at_every_instant(
    filled: EventStore, snapshot_at: int | None
):
    """As of T equals a copy that was taken at T, with snapshots and without."""
    if snapshot_at is not None:
        filled.snapshot(CONTROL.snapshot(state_after(snapshot_at)))
    for offset in range(len(EVENTS)):
        copy = state_after(offset + 1)
        for aggregate in ("", "topic/orders", "group/till", "setting/traceOn", "progress/till"):
            after = state(filled, aggregate, offset=offset)
            assert after.body == state_body(copy, aggregate)
            assert (after.end, after.at_ms) == (offset + 1, 1_000 + 10 * offset)
            at = state(filled, aggregate, at_ms=1_009 + 10 * offset)
            assert (at.body, at.end) == (after.body, after.end)
    assert state(filled).body == state_body(state_after(len(EVENTS)), "")
    if snapshot_at != 0:
        assert state(filled, at_ms=999).end == 0


def test_a_state_that_there_is_not(filled: EventStore):
    with pytest.raises(Rejected, match=r"no state after event 9.*from 0 to 9"):
        state(filled, offset=9)


def test_a_history_that_was_lost_says_where_it_begins(store: EventStore):
    store.begin(CONTROL.snapshot(state_after(4)))
    store.append([recorded(offset, EVENTS[offset]) for offset in range(4, 9)])
    page, found = history(store, HistoryQuestion("topic/orders", 9))
    assert ([each.offset for each in page], found.lost_before, found.before) == ([8], 4, None)
    assert state(store, offset=3).body == state_body(state_after(4), "")
    assert state(store).lost_before == 4
    with pytest.raises(Rejected, match="from 4 to 9"):
        state(store, offset=2)
    with pytest.raises(Rejected, match="starts at 1030 ms"):
        state(store, at_ms=1_029)
    with pytest.raises(Rejected, match="event 3 is lost: the history begins at 4") as refused:
        answer(store, EventQuestion(3), 0)
    assert refused.value.wire_code == Code.QUERY_NOT_FOUND


def test_a_state_too_large_for_one_answer_is_asked_in_parts(
    filled: EventStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kourou.eventstore.event_store.STATE_BYTES_MAX", 300)
    with pytest.raises(Rejected, match="at most 300") as refused:
        state(filled, offset=5)
    assert "topic/orders" in refused.value.hint
    assert json.loads(state(filled, "topic/orders", offset=5).body)["write_queue_nums"] == 8


# -- events ---------------------------------------------------------------------------------------


def test_an_event_comes_with_the_progress_that_it_took_away(filled: EventStore):
    def found(offset: int) -> EventFound:
        one = answer(filled, EventQuestion(offset), 0)
        assert isinstance(one, EventFound)
        assert one.recorded == recorded(offset, EVENTS[offset])
        return one

    assert found(3).dropped == {}
    assert found(6).dropped == {"till": {"orders": {0: 1, 3: 7}, "bills": {0: 2}}}
    assert found(8).dropped == {"late": {"orders": {1: 9}}}


def test_an_incomplete_history_is_not_returned_as_complete(filled: EventStore):
    questions: list[Question] = [HistoryQuestion("", 1), StateQuestion(""), EventQuestion(1)]
    for question in questions:
        with pytest.raises(MetadataUnavailable, match="below 9, but not yet those below 10"):
            answer(filled, question, 10)
        answer(filled, question, 9)


# -- without the database -------------------------------------------------------------------------

QUESTIONS: list[Question] = [HistoryQuestion("topic/orders", 5), StateQuestion("")]


def gone(store: EventStore) -> None:
    for question in (*QUESTIONS, EventQuestion(6)):
        with pytest.raises(MetadataUnavailable, match="cannot be used") as refused:
            answer(store, question, 9)
        assert refused.value.wire_code == Code.METADATA_UNAVAILABLE


@pytest.mark.fault
def test_postgresql_gone_and_back(postgres: PostgresServer):
    store = EventStore.open(postgres.new_database())
    store.append([recorded(offset, event) for offset, event in enumerate(EVENTS)])
    with postgres.gone():
        gone(store)
    for question in QUESTIONS:
        answer(store, question, 9)
    store.close()


def locked_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.mkdir()


@pytest.mark.fault
def test_sqlite_whose_file_cannot_be_opened(tmp_path: Path):
    path = tmp_path / "events.db"
    store = EventStore.at(path)
    store.append([recorded(offset, event) for offset, event in enumerate(EVENTS)])
    store._database.engine.dispose()
    locked_away(path)
    gone(store)
    path.rmdir()
    path.with_name("elsewhere").rename(path)
    for question in QUESTIONS:
        answer(store, question, 9)
    store.close()


@pytest.mark.fault
def test_sqlite_whose_file_is_no_database_any_more(tmp_path: Path):
    """An operator must act: that is not the same as being out of reach."""
    path = tmp_path / "events.db"
    store = EventStore.at(path)
    store.append([recorded(offset, event) for offset, event in enumerate(EVENTS)])
    store._database.engine.dispose()
    path.write_bytes(b"no database" * 1_000)
    for beside in ("events.db-wal", "events.db-shm"):
        (tmp_path / beside).unlink(missing_ok=True)
    for question in QUESTIONS:
        with pytest.raises(Corrupt, match="damaged"):
            answer(store, question, 9)
    store.close()
