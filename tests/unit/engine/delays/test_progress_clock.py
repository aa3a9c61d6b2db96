"""No clock that is set makes a message come early."""

from hypothesis import given
from hypothesis import strategies as st

from kourou.engine.delays.progress import DelayClock
from kourou.model.limits import CLOCK_STEPS_MAX

HOUR = 3_600_000


def looked(*readings: tuple[int, int, int]) -> DelayClock:
    clock = DelayClock()
    for reading in readings:
        clock.look(*reading)
    return clock


def test_without_steps_store_time_decides() -> None:
    clock = looked((1_000, 10, 0), (2_000, 1_010, 50), (9_000, 8_005, 60))
    assert clock.steps == []
    assert clock.due_ms(7, 123) == 123


def test_after_a_step_forward_what_lies_before_it_waits_so_much_longer() -> None:
    clock = DelayClock()
    assert clock.look(0, 0, 0) == 0
    assert clock.look(HOUR + 100, 100, 500) == HOUR
    assert clock.due_ms(499, 1_000) == HOUR + 1_000
    assert clock.due_ms(500, HOUR + 1_000) == HOUR + 1_000


def test_after_a_step_back_wall_time_decides() -> None:
    clock = looked((HOUR, 0, 0), (100, 100, 500))
    assert clock.due_ms(499, HOUR + 1_000) == HOUR + 1_000


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
