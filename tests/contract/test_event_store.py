"""What every event store promises, whatever database is behind it.

SQLite in a file and in memory, and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.engine.admin import undo
from kourou.engine.control import CONTROL, ControlState, evolve
from kourou.engine.groups.progress import Commits
from kourou.engine.policy import TopicRules
from kourou.errors import Code, Corrupt, Rejected
from kourou.events.control_events import (
    Cause,
    Event,
    EventLost,
    KeyValuePut,
    Recorded,
    TopicPut,
    UnknownEvent,
)
from kourou.events.stream import Snapshot, WrittenMeanwhile
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.event_store import EventStore
from kourou.model.topic import TopicConfig
from kourou.settings.registry import SettingsRegistry
from kourou_namesrv.key_values import KEY_VALUES, KeyValues


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        made: str = request.getfixturevalue("postgres").new_database()
        return made
    return sqlite_url(tmp_path / "events.db") if request.param == "sqlite-file" else "sqlite://"


@pytest.fixture
def store(url: str) -> Iterator[EventStore]:
    opened = EventStore.open(url)
    yield opened
    opened.close()


def recorded(offset: int, event: Event, at_ms: int | None = None) -> Recorded:
    at_ms = 1_000 + offset if at_ms is None else at_ms
    return Recorded(offset, offset * 300, at_ms, "admin:alice", "why", "0af7", event)


def topic_events(count: int, start: int = 0) -> list[Recorded]:
    return [
        recorded(offset, TopicPut(TopicConfig(f"T{offset % 5}", perm=offset % 8)))
        for offset in range(start, start + count)
    ]


def state_after(events: list[Recorded]) -> ControlState:
    state = ControlState()
    for each in events:
        evolve(state, each)
    return state


# -- writing and reading back -------------------------------------------------------------------


def test_a_new_store_is_empty(store: EventStore):
    assert store.info().next_offset == 0
    assert store.info().position == -1
    assert store.events() == []
    assert store.load(CONTROL) == (ControlState(), 0)
    assert store.load(CONTROL, as_of_ms=10**15) == (ControlState(), 0)
    assert store.history("topic/A").entries == ()


def test_events_come_back_as_they_were(store: EventStore):
    written = [
        *topic_events(3),
        recorded(3, UnknownEvent("New", "new/x", b'{"type":"New",  "n":1.50}')),
        recorded(4, EventLost("quarantined “bytes”")),
        recorded(5, TopicPut(TopicConfig("%RETRY%g"), TopicConfig("%RETRY%g", 1, 1))),
    ]
    assert store.append(written) == 6
    assert store.events() == written
    assert store.events(after=1, limit=2) == written[2:4]
    assert store.events(after=5) == []
    assert store.events(limit=0) == []
    info = store.info()
    assert (info.next_offset, info.position, info.at_ms, info.lost_before) == (6, 1500, 1005, 0)


def test_events_that_are_here_already_are_ignored(store: EventStore):
    written = topic_events(10)
    assert store.append(written[:6]) == 6
    assert store.append(written[2:10]) == 4
    assert store.append(written) == 0
    assert store.append(written[3:5]) == 0
    assert store.append([]) == 0
    assert store.events() == written


def test_a_gap_is_refused_and_nothing_is_written(store: EventStore):
    written = topic_events(10)
    store.append(written[:3])
    with pytest.raises(Corrupt, match="lacks events 3 to 4") as refused:
        store.append(written[5:])
    assert "rebuild" in refused.value.hint
    with pytest.raises(Corrupt, match="from offset 3 to 5"):
        store.append([written[3], written[5]])
    with pytest.raises(Corrupt):
        store.append([written[4], written[3]])
    assert store.events() == written[:3]


def test_a_log_that_was_cut_back_is_noticed_and_the_store_follows(store: EventStore):
    written = topic_events(10)
    store.append(written)
    store.snapshot(CONTROL.snapshot(state_after(written[:4])))
    store.snapshot(CONTROL.snapshot(state_after(written)))
    other = [recorded(offset, TopicPut(TopicConfig("Other")), 2_000) for offset in range(5, 12)]
    with pytest.raises(Corrupt, match="event 9 of stream control differs"):
        store.append(other)
    assert store.truncate(5) == 5
    assert store.truncate(5) == 0
    assert store.info().position == written[4].position
    assert store.info().at_ms == written[4].at_ms
    assert store.append(other) == 7
    assert store.load(CONTROL)[0] == state_after(written[:5] + other)
    assert store.truncate(0) == 12
    assert (store.info().position, store.info().at_ms) == (-1, 0)
    assert store.load(CONTROL) == (ControlState(), 0)


def test_a_store_that_is_opened_again_goes_on(url: str):
    if url == "sqlite://":
        return
    first = EventStore.open(url)
    first.append(topic_events(4))
    first.close()
    second = EventStore.open(url)
    assert second.append(topic_events(6)) == 2
    assert second.load(CONTROL)[0] == state_after(topic_events(6))
    second.close()


def test_streams_do_not_see_one_another(store: EventStore):
    store.append(topic_events(3))
    store.append(topic_events(5), stream="other")
    assert (store.info().next_offset, store.info(stream="other").next_offset) == (3, 5)
    store.set_aside(stream="other")
    assert store.info(stream="other").next_offset == 0
    assert store.events(stream="other") == []
    assert len(store.events()) == 3


def test_owners_of_one_database_do_not_mix(url: str):
    """Two brokers' stores in one database: as if each had it for itself."""
    database = Database(url)
    one, other = (EventStore(database, f"DefaultCluster/broker-{which}/0") for which in "ab")
    written = topic_events(9)
    one.append(written)
    assert other.info().next_offset == 0
    assert other.load(CONTROL) == (ControlState(), 0)
    theirs = [recorded(offset, TopicPut(TopicConfig("T2", 1, 1))) for offset in range(4)]
    other.append(theirs)
    other.snapshot(CONTROL.snapshot(state_after(theirs[:2])))
    assert one.events() == written
    assert other.events() == theirs
    assert one.load(CONTROL) == (state_after(written), 9)
    assert other.load(CONTROL) == (state_after(theirs), 4)
    assert one.load(CONTROL, as_of_ms=1_003)[0] == state_after(written[:4])
    assert [each.offset for each in one.history("topic/T2").entries] == [7, 2]
    assert [each.offset for each in other.history("topic/T2").entries] == [3, 2, 1, 0]
    assert other.truncate(1) == 3
    other.set_aside()
    other.begin(CONTROL.snapshot(state_after(written)))
    assert other.info().next_offset == 9
    [added] = one.record(
        KEY_VALUES, [KeyValuePut("N", "k", "1")], expected_offset=0, wall_ms=5, cause=Cause("a")
    )
    assert (one.events(stream="key-values"), other.events(stream="key-values")) == ([added], [])
    assert one.events() == written
    nobody = EventStore(database)
    assert nobody.events() == []
    assert nobody.events(stream="control@DefaultCluster/broker-a/0") == written
    database.close()


def test_a_stream_set_aside_is_kept_and_a_new_one_begins(store: EventStore):
    written = topic_events(6)
    assert store.set_aside() == ""
    store.append(written)
    store.snapshot(CONTROL.snapshot(state_after(written[:3])))
    assert store.set_aside() == "control~1"
    assert store.info().next_offset == 0
    assert store.load(CONTROL) == (ControlState(), 0)
    store.append(written[:2])
    assert store.set_aside() == "control~2"
    assert store.events(stream="control~1") == written
    assert store.events(stream="control~2") == written[:2]
    assert store.history("topic/T1", stream="control~1").entries == (written[1],)
    assert store.append(written) == 6


# -- history ------------------------------------------------------------------------------------


def test_history_is_newest_first_and_says_when_it_is_cut(store: EventStore):
    written = topic_events(23)
    store.append(written)
    mine = [each for each in reversed(written) if each.event.aggregate == "topic/T2"]
    assert len(mine) == 5
    whole = store.history("topic/T2")
    assert (list(whole.entries), whole.cut, whole.lost_before) == (mine, False, 0)
    first = store.history("topic/T2", limit=2)
    assert (list(first.entries), first.cut) == (mine[:2], True)
    rest = store.history("topic/T2", limit=3, before=mine[1].offset)
    assert (list(rest.entries), rest.cut) == (mine[2:], False)
    assert store.history("topic/T2", types=["GroupPut"]).entries == ()
    assert len(store.history("topic/T2", types=["GroupPut", "TopicPut"]).entries) == 5


def test_history_holds_what_an_undo_needs(store: EventStore):
    before, after = TopicConfig("A"), TopicConfig("A", 8, 8)
    store.append([recorded(0, TopicPut(before)), recorded(1, TopicPut(after, before))])
    newest = store.history("topic/A", limit=1).entries[0]
    assert (newest.actor, newest.reason, newest.trace_id) == ("admin:alice", "why", "0af7")
    state = store.load(CONTROL)[0]
    context = undo.UndoContext(
        TopicRules(broker_name="broker-a"), SettingsRegistry([]), Commits(state.progress)
    )
    assert undo.decide_undo(state, newest.event, context) == [TopicPut(before, after)]


# -- as of --------------------------------------------------------------------------------------


def test_as_of_is_a_prefix_even_when_a_clock_stepped_back(store: EventStore):
    times = [10, 20, 15, 17, 30]
    written = [
        recorded(offset, TopicPut(TopicConfig(f"T{offset}")), at_ms)
        for offset, at_ms in enumerate(times)
    ]
    store.append(written[:2])
    store.append(written[2:])
    ends = {at_ms: store.load(CONTROL, as_of_ms=at_ms)[1] for at_ms in (9, 10, 16, 19, 20, 29, 30)}
    assert ends == {9: 0, 10: 1, 16: 1, 19: 1, 20: 4, 29: 4, 30: 5}
    assert [each.at_ms for each in store.events()] == times


def test_a_snapshot_is_only_a_shortcut(store: EventStore):
    written = topic_events(40)
    store.append(written)
    for offset in (10, 20, 20, 35):
        store.snapshot(CONTROL.snapshot(state_after(written[:offset])))
    for end in range(41):
        assert store.load(CONTROL, as_of_ms=999 + end) == (state_after(written[:end]), end)


def test_a_snapshot_that_cannot_be_read_is_passed_over(store: EventStore):
    written = topic_events(8)
    store.append(written)
    store.snapshot(CONTROL.snapshot(state_after(written[:2])))
    store.snapshot(Snapshot("control", 5, 1_004, b'{"format":99}'))
    store.snapshot(Snapshot("control", 6, 1_005, b"\xff"))
    assert store.load(CONTROL) == (state_after(written), 8)


def test_a_snapshot_beyond_the_stream_is_refused(store: EventStore):
    store.append(topic_events(3))
    with pytest.raises(Corrupt, match="outside stream"):
        store.snapshot(CONTROL.snapshot(state_after(topic_events(4))))


def test_snapshots_fall_due_as_events_gather(store: EventStore):
    store.append(topic_events(2))
    assert not store.info().snapshot_due
    reason = EventLost("x" * 300_000)
    store.append([recorded(2, reason)])
    assert store.info().snapshot_due
    store.snapshot(CONTROL.snapshot(store.load(CONTROL)[0]))
    assert not store.info().snapshot_due


# -- a store that was lost ----------------------------------------------------------------------


def test_a_lost_store_begins_with_a_state_and_says_what_it_does_not_know(store: EventStore):
    written = topic_events(20)
    start = state_after(written[:12])
    store.begin(CONTROL.snapshot(start))
    assert store.info().lost_before == store.info().next_offset == 12
    assert store.append(written[10:]) == 8
    assert store.load(CONTROL) == (state_after(written), 20)
    assert store.load(CONTROL, as_of_ms=start.at_ms) == (start, 12)
    assert store.history("topic/T0").lost_before == 12
    with pytest.raises(Rejected, match="earlier events are lost"):
        store.load(CONTROL, as_of_ms=start.at_ms - 1)
    with pytest.raises(Rejected, match="exists already"):
        store.begin(CONTROL.snapshot(start))
    with pytest.raises(Corrupt, match="cannot go back to 11"):
        store.truncate(11)
    store.truncate(12)
    assert (store.info().at_ms, store.info().position) == (start.at_ms, -1)
    assert store.load(CONTROL) == (start, 12)
    store.set_aside()
    assert store.append(written) == 20


def test_a_lost_beginning_without_its_snapshot_is_not_made_up(store: EventStore):
    store.begin(Snapshot("control", 3, 5, b"broken"))
    with pytest.raises(Corrupt, match="starts at offset 3"):
        store.load(CONTROL)


# -- a stream without a log ---------------------------------------------------------------------


def test_a_service_without_a_log_writes_its_events_here(store: EventStore):
    cause = Cause("admin:bob", "order topic")
    first = store.record(
        KEY_VALUES,
        [KeyValuePut("N", "k", "1"), KeyValuePut("N", "l", "2")],
        expected_offset=0,
        wall_ms=50,
        cause=cause,
    )
    assert [(each.offset, each.position, each.at_ms) for each in first] == [
        (0, -1, 50),
        (1, -1, 50),
    ]
    [second] = store.record(
        KEY_VALUES, [KeyValuePut("N", "k", "3", "1")], expected_offset=2, wall_ms=40, cause=cause
    )
    assert (second.offset, second.at_ms, second.actor) == (2, 50, "admin:bob")
    assert store.events(stream="key-values") == [*first, second]
    assert store.load(KEY_VALUES)[0] == KeyValues({"N": {"k": "3", "l": "2"}}, 3, 50)
    with pytest.raises(WrittenMeanwhile, match="was changed in the meantime") as clash:
        store.record(
            KEY_VALUES, [KeyValuePut("N", "m", "1")], expected_offset=2, wall_ms=60, cause=cause
        )
    assert clash.value.missed == [second]
    assert clash.value.code is Code.METADATA_UNAVAILABLE
    with pytest.raises(WrittenMeanwhile, match="is at 3, not 7") as clash:
        store.record(KEY_VALUES, [], expected_offset=7, wall_ms=60, cause=cause)
    assert clash.value.missed == []
    assert store.info(stream="key-values").next_offset == 3
