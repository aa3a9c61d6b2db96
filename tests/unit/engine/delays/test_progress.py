"""What the log says of deliveries, wherever a crash cut it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.engine.delays.progress import (
    PROGRESS_TARGET,
    DelayClock,
    DelayProgress,
    decode_progress,
    find_progress,
    progress_draft,
)
from kourou.errors import DecodeError
from kourou.model.limits import CLOCK_STEPS_MAX
from kourou.model.names import SCHEDULE_TOPIC
from kourou_rigs.engine import Engine
from kourou_rigs.records import delayed_draft as delayed


def with_waiting(records, count: int) -> Engine:
    engine = Engine()
    for number in range(count):
        target = ("orders", number % 3)
        engine.ask(*records([delayed(1 + number % 2, f"M{number}", *target)], [target]))
    return engine


def test_other_records_behind_a_cut_are_no_deliveries(records) -> None:
    """RocketMQ may have gone on with the log where our append was cut."""
    engine = with_waiting(records, 4)
    before = engine.store.end
    engine.advance(6_000)
    announced = [at for at in sorted(engine.store.records) if at >= before]
    assert engine.stored(*PROGRESS_TARGET)[-1].position == announced[0]
    again = Engine(left=engine.store.cut(announced[2]))  # the announcement and one delivery
    for number in range(5):
        again.ask(*records([delayed(1, f"later {number}")]))
    assert sum(find_progress(again.store, 1 << 20).offsets.values()) == 1


def test_a_damaged_announcement_is_passed_over_and_reported(records) -> None:
    engine = with_waiting(records, 2)
    engine.advance(1_000)
    good = find_progress(engine.store, 1 << 20)
    engine.ask(*records([delayed(1, "third")]))
    engine.advance(1_000)
    newest = engine.stored(*PROGRESS_TARGET)[-1].position
    raw = bytearray(engine.store.records[newest])
    raw[100] ^= 1
    engine.store.records[newest] = bytes(raw)
    found = find_progress(engine.store, 1 << 20)
    assert found.offsets == good.offsets
    assert str(newest) in str(found.problems[0])


def test_the_body() -> None:
    progress = DelayProgress({1: 5, 3: 7}, [(1, 5, 2)], [(100, -3)])
    draft = progress_draft(progress, 1, bytes(8))
    body = b'{"offsets":{"1":5,"3":7},"runs":[[1,5,2]],"steps":[[100,-3]]}'
    assert body in draft
    assert decode_progress(body) == progress
    for wrong in (b"", b"{", b'{"offsets":[]}', b"[" * 5_000, b'{"runs":[[1,2]]}', b"\xff"):
        with pytest.raises(DecodeError):
            decode_progress(wrong)


def test_nobody_sends_to_it(engine, draft, records) -> None:
    reply = engine.ask(*records([draft(topic=PROGRESS_TARGET[0])], [PROGRESS_TARGET]))
    assert reply.header.target_codes != [0]
    assert not engine.store.queue_ids(SCHEDULE_TOPIC)


# -- no clock that is set makes a message come early -----------------------------------------------


HOUR = 3_600_000


def looked(*readings: tuple[int, int, int]) -> DelayClock:
    clock = DelayClock()
    for reading in readings:
        clock.look(*reading)
    return clock


def test_a_step_that_is_taken_back_costs_nothing() -> None:
    clock = looked((HOUR, 0, 0), (100, 100, 500), (HOUR + 200, 200, 600))
    assert clock.due_ms(499, HOUR + 1_000) == HOUR + 1_000
    # Stored meanwhile, with the store time of the last one before: late by the step, never early.
    assert clock.due_ms(550, HOUR + 1_000) == 2 * HOUR + 900 + 100
    assert clock.due_ms(600, HOUR + 1_000) == HOUR + 1_000


def test_steps_are_few_and_the_oldest_two_become_one_that_is_later() -> None:
    clock = DelayClock()
    wall = 0
    for number in range(3 * CLOCK_STEPS_MAX):
        wall += 1_000 if number % 2 else -1_000
        clock.look(wall, 0, number)
    assert len(clock.steps) <= CLOCK_STEPS_MAX
    assert clock.due_ms(0, 0) >= 0


@given(st.lists(st.tuples(st.integers(-HOUR, HOUR), st.integers(0, HOUR)), min_size=1, max_size=8))
def test_nothing_is_due_before_its_delay_has_really_passed(steps) -> None:
    """Between the looks the clock is set by so much, and so much time passes."""
    clock, real_ms, set_ms, end, newest_ms = DelayClock(), 10 * HOUR, 0, 0, 0
    stored: list[tuple[int, int, int]] = []
    clock.look(real_ms, real_ms, end)
    for step_ms, passed_ms in steps:
        newest_ms = max(newest_ms, real_ms + set_ms)
        stored.append((end, newest_ms, real_ms))
        end += 100
        set_ms += step_ms
        clock.look(real_ms + set_ms, real_ms, end)
        real_ms += passed_ms
        for position, stored_ms, really_ms in stored:
            due_ms = clock.due_ms(position, stored_ms + 1_000)
            is_due = real_ms + set_ms >= due_ms
            assert not is_due or real_ms >= really_ms + 1_000 - 20 * len(steps)
