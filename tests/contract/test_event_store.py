"""What every event store promises, whatever database is behind it.

SQLite in a file and in memory always; PostgreSQL when KOUROU_TEST_POSTGRES_URL names a database
that may be emptied.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.engine import control, groups, progress, settings, topics, undo
from kourou.engine.control import CONTROL, ControlState, evolve
from kourou.engine.events import (
    Cause,
    Event,
    EventLost,
    KeyValuePut,
    Recorded,
    TopicPut,
    UnknownEvent,
    decode_record_body,
    encode_record_body,
)
from kourou.engine.key_values import KEY_VALUES, KeyValues
from kourou.engine.progress import Commits
from kourou.engine.settings_registry import SettingSpec, SettingsRegistry
from kourou.engine.stream import Snapshot, StreamKind
from kourou.engine.topics import TopicRules
from kourou.errors import Corrupt, MetadataUnavailable, Rejected
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.event_store import EventStore
from kourou.eventstore.schema import VERSION_TABLE
from kourou.eventstore.tables import metadata
from kourou.model.group import GroupConfig
from kourou.model.topic import TopicConfig

POSTGRES_URL = os.environ.get("KOUROU_TEST_POSTGRES_URL", "")
DATABASES = ["sqlite-file", "sqlite-memory", *(["postgresql"] if POSTGRES_URL else [])]


def empty(url: str) -> str:
    """The URL of a database without our tables."""
    database = Database(url)
    with database.writing() as connection:
        metadata.drop_all(connection)
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {VERSION_TABLE}")
    database.close()
    return url


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return empty(POSTGRES_URL)
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
    with pytest.raises(Corrupt, match="event 9 of the stream control is another one"):
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
    store.forget(stream="other")
    assert store.info(stream="other").next_offset == 0
    assert store.events(stream="other") == []
    assert len(store.events()) == 3


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
    context = undo.UndoContext(TopicRules(), SettingsRegistry([]), Commits(state.progress))
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
    with pytest.raises(Corrupt, match="outside the stream"):
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
    with pytest.raises(Rejected, match="what was before is lost"):
        store.load(CONTROL, as_of_ms=start.at_ms - 1)
    with pytest.raises(Rejected, match="has begun"):
        store.begin(CONTROL.snapshot(start))
    with pytest.raises(Corrupt, match="cannot go back to 11"):
        store.truncate(11)
    store.truncate(12)
    assert (store.info().at_ms, store.info().position) == (start.at_ms, -1)
    assert store.load(CONTROL) == (start, 12)
    store.forget()
    assert store.append(written) == 20


def test_a_lost_beginning_without_its_snapshot_is_not_made_up(store: EventStore):
    store.begin(Snapshot("control", 3, 5, b"broken"))
    with pytest.raises(Corrupt, match="begins at offset 3"):
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
    with pytest.raises(MetadataUnavailable, match="somebody else has written"):
        store.record(
            KEY_VALUES, [KeyValuePut("N", "m", "1")], expected_offset=2, wall_ms=60, cause=cause
        )
    assert store.info(stream="key-values").next_offset == 3


# -- random histories ---------------------------------------------------------------------------

RULES = TopicRules()
REGISTRY = SettingsRegistry(
    [
        SettingSpec("hours", 72, dynamic=True, minimum=1, maximum=100),
        SettingSpec("traceOn", True, dynamic=True),
        SettingSpec("regionId", "r", dynamic=True),
        SettingSpec("maxMessageSize", 4),
    ]
)
TOPICS = ["A", "B", "a", "%DLQ%g", "orders", "TBW102", "bad name", ""]
GROUPS = ["g", "h", "G", "TOOLS_CONSUMER", "no/slash"]


class Operator:
    """Throws random commands at a control state; what they cause goes through its bytes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.live = ControlState()
        self.commits = Commits(self.live.progress)
        self.bodies: list[bytes] = []
        self.recorded: list[Recorded] = []
        self.copies: dict[int, ControlState] = {}
        self.wall_ms = 1_000
        self.refused = 0

    def command(self) -> None:
        """One command, decided on the live state; perhaps refused, perhaps several events."""
        self.wall_ms += self.chance.choice([0, 0, 1, 7, -3])
        before = len(self.recorded)
        try:
            events = self._decide()
        except Rejected:
            self.refused += 1
            assert len(self.recorded) == before
            return
        for event in events:
            at_ms = control.time_of_next(self.live, self.wall_ms)
            body = encode_record_body(event, at_ms=at_ms, cause=Cause("admin", "because"))
            offset = self.live.next_offset
            # The live state sees the event itself, the replayed one what its bytes say.
            evolve(self.live, Recorded(offset, offset * 100, at_ms, "admin", "because", "", event))
            self.bodies.append(body)
            self.recorded.append(decode_record_body(body, offset=offset, position=offset * 100))
        self.copies[self.live.at_ms] = self.live.copy()

    def _decide(self) -> list[Event]:
        chance, live = self.chance, self.live
        topic, group = chance.choice(TOPICS), chance.choice(GROUPS)
        offsets: dict[int, int | None] = {
            chance.randrange(4): chance.choice([None, 0, 5, 9, -1]) for _ in range(3)
        }
        match chance.randrange(14):
            case 0:
                return control.decide_start(live, RULES)
            case 1 | 2:
                wanted = TopicConfig(
                    topic, chance.randrange(6), chance.randrange(6), chance.randrange(9)
                )
                return topics.decide_put(live.topics, RULES, wanted, forced=chance.random() < 0.3)
            case 3:
                return topics.decide_delete(live.topics, RULES, topic)
            case 4:
                return topics.decide_auto_create(
                    live.topics,
                    RULES,
                    topic,
                    default_topic=chance.choice(["TBW102", "A"]),
                    default_queue_nums=chance.randrange(12),
                )
            case 5:
                wanted_group = GroupConfig(group, retry_max_times=chance.randrange(-1, 4))
                return groups.decide_put(live.groups, wanted_group)
            case 6:
                return control.decide_delete_group(
                    live, self.commits, group, remove_offset=chance.random() < 0.5
                )
            case 7:
                return control.decide_consumer_group(live, group, auto_create=chance.random() < 0.7)
            case 8:
                key = chance.choice(["hours", "traceOn", "regionId", "maxMessageSize", "storePath"])
                value = chance.choice(["1", "50", "true", "false", "text", "-4"])
                return settings.decide_change(live.settings, REGISTRY, {key: value})
            case 9:
                return settings.decide_clear(
                    live.settings, REGISTRY, chance.choice(["hours", "traceOn", "nothing"])
                )
            case 10:
                for queue, offset in offsets.items():
                    self.commits.commit(group, topic, queue, 0 if offset is None else offset)
                return self.commits.record() if chance.random() < 0.7 else []
            case 11:
                return progress.decide_reset(self.commits, group, topic, offsets)
            case 12:
                return progress.decide_clone(self.commits, group, chance.choice(GROUPS))
            case _:
                if not self.recorded:
                    return [UnknownEvent("New", "new", b'{"type":"New"}')]
                event = chance.choice(self.recorded[-5:]).event
                context = undo.UndoContext(
                    RULES, REGISTRY, self.commits, forced=chance.random() < 0.2
                )
                return undo.decide_undo(live, event, context)


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """One store for all histories, each in a stream of its own."""
    url = sqlite_url(tmp_path_factory.mktemp("histories") / "events.db")
    opened = EventStore.open(empty(POSTGRES_URL) if POSTGRES_URL else url)
    yield opened
    opened.close()


@pytest.mark.fault
def test_random_histories_are_rebuilt_from_their_bytes_and_as_of_any_time(
    shared_store: EventStore, rounds: Callable[[int], int]
):
    refused = decided = 0
    for seed in range(rounds(1_000)):
        operator = Operator(seed)
        kind = StreamKind(f"history-{seed}", ControlState, evolve, CONTROL.encode, CONTROL.decode)
        projected = 0
        for step in range(1, 61):
            operator.command()
            if step % 12 == 0:
                # Batches overlap, as they do when a broker that crashed projects again.
                start = max(0, projected - operator.chance.randrange(3))
                shared_store.append(operator.recorded[start:], stream=kind.name)
                projected = len(operator.recorded)
                if operator.chance.random() < 0.7 and projected:
                    shared_store.snapshot(kind.snapshot(operator.live))
        check(shared_store, kind, operator)
        refused, decided = refused + operator.refused, decided + len(operator.recorded)
    assert refused > decided // 10
    assert decided > refused


def check(store: EventStore, kind: StreamKind[ControlState], operator: Operator) -> None:
    live = operator.live
    replayed = ControlState()
    for offset, body in enumerate(operator.bodies):
        evolve(replayed, decode_record_body(body, offset=offset, position=offset * 100))
    assert replayed == live
    assert CONTROL.encode(replayed) == CONTROL.encode(live)
    loaded, end = store.load(kind)
    assert (loaded, end) == (live, len(operator.recorded))
    times = sorted(operator.copies)
    for at_ms in {*operator.chance.sample(times, min(6, len(times))), *times[-1:]}:
        assert store.load(kind, as_of_ms=at_ms)[0] == operator.copies[at_ms]
    assert store.load(kind, as_of_ms=0)[0] == ControlState()
    loaded.topics.table.clear()
    assert store.load(kind)[0] == live
