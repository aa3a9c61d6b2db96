"""Whatever operators do, the event store rebuilds it, and the state as of any time.

Random commands on a live state; what they cause goes through its bytes into the store and back. On
SQLite and PostgreSQL.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from kourou.engine import control
from kourou.engine.admin import topic_table as topics
from kourou.engine.admin import undo
from kourou.engine.control import CONTROL, ControlState, evolve
from kourou.engine.groups import group_table as groups
from kourou.engine.groups import progress
from kourou.engine.groups.progress import Commits
from kourou.engine.policy import TopicRules
from kourou.errors import Rejected
from kourou.events.control_events import (
    Cause,
    Event,
    Recorded,
    UnknownEvent,
    decode_record_body,
    encode_record_body,
)
from kourou.events.stream import StreamKind
from kourou.eventstore.event_store import EventStore
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.settings import registry as settings
from kourou.settings.declaration import Setting
from kourou.settings.registry import SettingsRegistry

RULES = TopicRules(broker_name="broker-a")
REGISTRY = SettingsRegistry(
    [
        Setting("hours", 72, dynamic=True, low=1, high=100),
        Setting("traceOn", True, dynamic=True),
        Setting("regionId", "r", dynamic=True),
        Setting("maxMessageSize", 4),
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


@pytest.fixture(scope="module", params=["sqlite-file", "postgresql"])
def shared_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EventStore]:
    """One store for all histories, each in a stream of its own."""
    if request.param == "postgresql":
        opened = EventStore.open(request.getfixturevalue("postgres").new_database())
    else:
        opened = EventStore.at(tmp_path_factory.mktemp("histories") / "events.db")
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
