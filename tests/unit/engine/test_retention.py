"""When the old end of the log goes, and who is told before it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.engine.effects import DeleteLogBefore
from kourou.engine.inputs import ClosedSegment, DiskMeasured, LogShrunk, SpaceChanged
from kourou.engine.retention import (
    by_group,
    first_unread,
    older_than,
    relief,
    unprojected_from,
    unread_before,
    warning_ms,
)
from kourou.engine.transactions.half_messages import HALF_TARGET
from kourou.engine.transactions.open_halves import OpenHalf
from kourou.events.control_events import (
    Cause,
    GroupPut,
    LogDeleted,
    UnreadExpiring,
    UnreadSpan,
    decode_record_body,
)
from kourou.model.names import SCHEDULE_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.runtime import LogWarning
from kourou_rigs.engine import Engine


def segments(*ages: int) -> list[ClosedSegment]:
    return [ClosedSegment(100 * n, 100 * n + 100, age) for n, age in enumerate(ages)]


def test_expired_is_a_run_from_the_oldest_on() -> None:
    aged = segments(90, 80, 70, 80)
    assert [older_than(aged, age) for age in (91, 90, 80, 70, 0)] == [0, 1, 2, 4, 4]


def test_relief_is_as_little_as_helps_or_nothing() -> None:
    three = segments(3, 2, 1)
    assert [relief(three, over) for over in (1, 100, 101, 300)] == [1, 1, 2, 3]
    assert relief(three, 301) is None
    assert relief([], 1) is None


def test_warnings_come_in_good_time() -> None:
    assert warning_ms(72 * 3_600_000) == 6 * 3_600_000
    assert warning_ms(3_600_000) == 900_000


@pytest.fixture
def filled(engine: Engine, draft, records) -> Engine:
    """Six messages in queue 0 and two in queue 1 of `orders`; groups are made by the tests."""
    for n in range(6):
        engine.ask(*records([draft(body=b"%d" % n)]))
    engine.ask(*records([draft(queue_id=1), draft(queue_id=1)], [("orders", 1)]))
    return engine


def join(engine: Engine, group: str, **offsets: int) -> None:
    from kourou.events.control_events import Cause, GroupPut
    from kourou.model.subscription import GroupConfig

    engine.core.parts.recorder.record([GroupPut(GroupConfig(group))], Cause("t"), 1)
    for queue, offset in offsets.items():
        engine.core.parts.commits.commit(group, "orders", int(queue[1:]), offset)


def unread(engine: Engine, end: int) -> list[UnreadSpan]:
    return unread_before(engine.store, engine.control, engine.core.parts.commits, end)


def at(engine: Engine, queue: int, offset: int) -> int:
    return engine.store.offset_position("orders", queue, offset)


@pytest.mark.feature("F125")
def test_unread_is_what_lies_between_a_groups_offset_and_the_new_beginning(filled: Engine) -> None:
    join(filled, "behind", q0=2, q1=0)
    join(filled, "abreast", q0=6, q1=2)
    join(filled, "beyond", q0=99)
    assert unread(filled, at(filled, 0, 2)) == []
    assert unread(filled, at(filled, 0, 2) + 1) == [UnreadSpan("behind", "orders", 0, 2, 3)]
    assert unread(filled, filled.store.end) == [
        UnreadSpan("behind", "orders", 0, 2, 6),
        UnreadSpan("behind", "orders", 1, 0, 2),
    ]


def test_what_is_gone_already_is_not_lost_again(filled: Engine) -> None:
    join(filled, "behind", q0=0)
    filled.store.queues["orders", 0] = filled.store.queues["orders", 0][3:]
    filled.store.firsts["orders", 0] = 3
    assert unread(filled, at(filled, 0, 5)) == [UnreadSpan("behind", "orders", 0, 3, 5)]


def test_a_group_that_is_not_registered_loses_nothing(filled: Engine) -> None:
    filled.core.parts.commits.commit("gone", "orders", 0, 0)
    filled.core.parts.commits.commit("gone", "nothing", 0, 0)
    assert unread(filled, filled.store.end) == []
    join(filled, "gone")
    assert len(unread(filled, filled.store.end)) == 1


def test_a_retry_topic_is_unread_from_its_beginning_on(filled: Engine) -> None:
    join(filled, "sick")
    filled.store.queues["%RETRY%sick", 0] = [10, 20, 30]
    filled.store.firsts["%RETRY%sick", 0] = 4
    assert unread(filled, 25) == [UnreadSpan("sick", "%RETRY%sick", 0, 4, 6)]
    filled.core.parts.commits.commit("sick", "%RETRY%sick", 0, 5)
    assert unread(filled, 25) == [UnreadSpan("sick", "%RETRY%sick", 0, 5, 6)]


def test_the_first_unread_message_and_the_sums(filled: Engine) -> None:
    join(filled, "a", q0=3, q1=0)
    join(filled, "b", q0=1)
    spans = unread(filled, filled.store.end)
    assert first_unread(filled.store, spans) == at(filled, 0, 1)
    assert by_group(spans) == {("orders", "a"): 5, ("orders", "b"): 5}


def test_control_events_that_the_event_store_lacks(engine: Engine) -> None:
    _, high = engine.store.queue_range("rmq_sys_kourou_control", 0) or (0, 0)
    assert high > 3
    position = engine.store.offset_position("rmq_sys_kourou_control", 0, 3)
    assert unprojected_from(engine.store, 3) == position
    assert unprojected_from(engine.store, 0) == 0
    assert unprojected_from(engine.store, high) is None
    assert unprojected_from(engine.store, None) is None


HOUR = 3_600_000
DAY = 24 * HOUR
GB = 1 << 30
TOTAL = 100 * GB
SEGMENT = 1 * GB


class Site:
    """An engine that is shown a disk: `segments` closed ones of 1 GB, `used` percent in use."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.policy = engine.policy
        self.handler = engine.core.parts.retention
        self.hour = 12
        self.ages: list[int] = []
        self.start = 0
        self.used = 50.0
        self.more: dict[str, object] = {}

    def look(self, **fields: object) -> list[DeleteLogBefore]:
        """One look; what was asked to be deleted by it."""
        before = len(self.engine.effects)
        segments = [
            ClosedSegment(self.start + n * SEGMENT, self.start + (n + 1) * SEGMENT, age)
            for n, age in enumerate(self.ages)
        ]
        look = DiskMeasured(
            TOTAL,
            round(TOTAL * (100 - self.used) / 100),
            self.engine.wall_ms,
            self.hour,
            segments,
            deletable_end=self.start + len(self.ages) * SEGMENT,
        )
        self.engine.handle(replace(look, **self.more, **fields))
        return [e for e in self.engine.effects[before:] if isinstance(e, DeleteLogBefore)]

    def done(self) -> None:
        """The deletion that was asked for has happened."""
        end = next(e for e in reversed(self.engine.effects) if isinstance(e, DeleteLogBefore))
        gone = (end.position - self.start) // SEGMENT
        self.start, self.ages = end.position, self.ages[gone:]
        self.used -= 100 * gone * SEGMENT / TOTAL
        self.engine.handle(LogShrunk(self.start))

    def passes(self, hours: int) -> list[int]:
        """Let time go on by hours; how many segments went in each."""
        gone = []
        for _ in range(hours):
            before = len(self.ages)
            if self.look():
                self.done()
            gone.append(before - len(self.ages))
            self.tick(HOUR)
        return gone

    def tick(self, ms: int) -> None:
        """Both clocks go on, and segments age."""
        self.engine.now_ms += ms
        self.engine.wall_ms += ms
        self.hour = (self.hour + ms // HOUR) % 24
        self.ages = [age + ms for age in self.ages]

    def warnings(self) -> list[str]:
        return [str(e) for e in self.engine.effects if isinstance(e, LogWarning)]

    def recorded(self, kind: type) -> list[object]:
        found = []
        for stored in self.engine.events():
            event = decode_record_body(stored.body, offset=0, position=0).event
            if isinstance(event, kind):
                found.append(event)
        return found

    def group(self, name: str, offset: int) -> None:
        """A registered group that has read `orders` up to an offset."""
        parts = self.engine.core.parts
        parts.recorder.record([GroupPut(GroupConfig(name))], Cause("t"), 1)
        self.engine._perform(parts.appends.take_done())
        parts.commits.commit(name, "orders", 0, offset)

    def place(self, *positions: int) -> None:
        """Messages of `orders`, queue 0, at these positions of the log."""
        self.engine.store.queues["orders", 0] = list(positions)
        self.engine.store.firsts["orders", 0] = 0


@pytest.fixture
def site(engine: Engine) -> Site:
    return Site(engine)


# -- by age -------------------------------------------------------------------------------------


@pytest.mark.feature("F122", "F340")
def test_the_hours_may_be_several_and_change(site: Site) -> None:
    site.engine.core.parts.apply("deleteWhen", "04;16")
    site.ages = [80 * HOUR] * 2
    gone = {}
    for _ in range(24):
        if site.look():
            gone[site.hour] = True
            site.done()
            site.ages = [*site.ages, 80 * HOUR][-2:]
        site.tick(HOUR)
        site.ages = [80 * HOUR, 0]
    assert set(gone) == {4, 16}


def test_one_pass_an_hour_and_a_quarter_each_until_all_is_gone(site: Site) -> None:
    site.ages = [100 * HOUR] * 16 + [0]
    site.hour = 4
    assert site.passes(10) == [4, 3, 2, 2, 1, 1, 1, 1, 1, 0]
    assert site.ages[0] < 72 * HOUR


def test_within_an_hour_there_is_no_second_pass_whatever_the_wall_clock_says(site: Site) -> None:
    site.ages = [100 * HOUR] * 8
    site.hour = 4
    assert site.look()
    site.done()
    for hour in (5, 4, 3, 4, 16, 4):
        site.hour = hour
        site.engine.wall_ms += DAY
        site.engine.now_ms += 1_000
        assert site.look() == []


def test_a_pass_that_found_nothing_waits_for_the_next_hour_of_deletion(site: Site) -> None:
    site.hour = 4
    site.look()
    site.ages = [0]
    site.look()
    site.hour = 15
    site.ages = [80 * HOUR]
    assert site.look() == []


@pytest.mark.feature("F127")
def test_dead_letters_expire_like_everything(site: Site) -> None:
    """Whole segments go, whatever topics they hold: nothing asks for a topic."""
    site.engine.store.queues["%DLQ%g", 0] = [5]
    site.engine.store.firsts["%DLQ%g", 0] = 0
    site.ages = [80 * HOUR, 0]
    site.hour = 4
    assert site.look() == [DeleteLogBefore(SEGMENT)]
    assert site.recorded(LogDeleted)[0].unread == ()


def test_history_that_the_event_store_lacks_is_kept_while_there_is_room(site: Site) -> None:
    site.ages = [80 * HOUR] * 4
    site.hour = 4
    assert site.look(events_projected=0) == []
    assert site.look(events_projected=0) == []
    assert len([text for text in site.warnings() if "event store" in text]) == 1
    _, high = site.engine.store.queue_range("rmq_sys_kourou_control", 0) or (0, 0)
    assert site.look(events_projected=high) == [DeleteLogBefore(SEGMENT)]
    site.done()
    site.used = 80
    assert site.look(events_projected=0), "an almost full disk does not wait for a database"


# -- by the disk --------------------------------------------------------------------------------


@pytest.mark.feature("F125", "F249")
def test_what_waits_for_its_time_or_its_outcome_is_named_and_kept_like_the_unread(
    site: Site,
) -> None:
    site.policy.change(lose_unconsumed=False)
    site.engine.store.queues[SCHEDULE_TOPIC, 2] = [10, SEGMENT + 20]
    site.engine.store.firsts[SCHEDULE_TOPIC, 2] = 7
    site.engine.core.parts.delays._offsets[3] = 8
    site.engine.store.queues[HALF_TARGET] = [30, 2 * SEGMENT + 30]
    site.engine.store.firsts[HALF_TARGET] = 4
    halves = site.engine.core.parts.transactions.halves
    for offset, position in ((3, 5), (5, 2 * SEGMENT + 30)):
        halves.open(OpenHalf(offset, position, 0))
    site.ages = [70 * HOUR] * 4
    site.used = 87
    assert site.look() == [DeleteLogBefore(SEGMENT)], "what waits longest lies in the second"
    site.done()
    (event,) = site.recorded(UnreadExpiring)
    assert event.unread == (
        UnreadSpan("SCHEDULE_CONSUMER", SCHEDULE_TOPIC, 2, 8, 9),
        UnreadSpan("CID_RMQ_SYS_TRANS", *HALF_TARGET, 5, 6),
    )
    assert site.look() == []
    assert "SCHEDULE_CONSUMER (1 messages of SCHEDULE_TOPIC_XXXX)" in site.warnings()[-1]
    site.policy.change(lose_unconsumed=True)
    assert site.look() == [DeleteLogBefore(3 * SEGMENT)]
    assert site.recorded(LogDeleted)[-1].unread == event.unread
    assert site.handler.unread_deleted == {
        (SCHEDULE_TOPIC, "SCHEDULE_CONSUMER"): 1,
        (HALF_TARGET[0], "CID_RMQ_SYS_TRANS"): 1,
    }


def test_very_many_losses_are_reported_in_several_events(site: Site) -> None:
    site.group("slow", 0)
    for queue in range(1_500):
        site.engine.store.queues["many", queue] = [10]
        site.engine.store.firsts["many", queue] = 0
        site.engine.core.parts.commits.commit("slow", "many", queue, 0)
    site.ages = [HOUR] * 20
    site.used = 85
    assert site.look()
    assert [len(event.unread) for event in site.recorded(LogDeleted)] == [1_000, 500]


def test_a_log_without_room_for_the_event_is_made_shorter_all_the_same(site: Site) -> None:
    engine = site.engine
    engine.core.parts.appends._allocated_end = engine.store.end
    engine.handle(SpaceChanged(0, full=True))
    site.ages = [HOUR] * 20
    site.used = 86
    assert site.look(full=True) == [DeleteLogBefore(2 * SEGMENT)]
    assert site.recorded(LogDeleted) == []
    engine.handle(SpaceChanged(1 << 40, full=False))
    site.done()
    site.look()
    assert site.recorded(LogDeleted) == [LogDeleted(0, 2 * SEGMENT, "forced")]
