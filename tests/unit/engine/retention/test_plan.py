"""What may be deleted, and whom it costs what."""

from __future__ import annotations

import pytest

from kourou.engine.inputs import ClosedSegment
from kourou.engine.retention import plan as retention
from kourou.events.control_events import UnreadSpan
from kourou_rigs.engine import Engine


def segments(*ages: int) -> list[ClosedSegment]:
    return [ClosedSegment(100 * n, 100 * n + 100, age) for n, age in enumerate(ages)]


def test_expired_is_a_run_from_the_oldest_on() -> None:
    aged = segments(90, 80, 70, 80)
    assert [retention.older_than(aged, age) for age in (91, 90, 80, 70, 0)] == [0, 1, 2, 4, 4]


def test_relief_is_as_little_as_helps_or_nothing() -> None:
    three = segments(3, 2, 1)
    assert [retention.relief(three, over) for over in (1, 100, 101, 300)] == [1, 1, 2, 3]
    assert retention.relief(three, 301) is None
    assert retention.relief([], 1) is None


def test_warnings_come_in_good_time() -> None:
    assert retention.warning_ms(72 * 3_600_000) == 6 * 3_600_000
    assert retention.warning_ms(3_600_000) == 900_000


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
    return retention.unread_before(engine.store, engine.control, engine.core.parts.commits, end)


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
    assert retention.first_unread(filled.store, spans) == at(filled, 0, 1)
    assert retention.by_group(spans) == {("orders", "a"): 5, ("orders", "b"): 5}


def test_control_events_that_the_event_store_lacks(engine: Engine) -> None:
    _, high = engine.store.queue_range("rmq_sys_kourou_control", 0) or (0, 0)
    assert high > 3
    position = engine.store.offset_position("rmq_sys_kourou_control", 0, 3)
    assert retention.unprojected_from(engine.store, 3) == position
    assert retention.unprojected_from(engine.store, 0) == 0
    assert retention.unprojected_from(engine.store, high) is None
    assert retention.unprojected_from(engine.store, None) is None
