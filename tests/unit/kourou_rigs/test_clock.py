from __future__ import annotations

import pytest

from kourou_rigs.clock import ManualClock


def test_time_passes_when_it_is_told_to() -> None:
    clock = ManualClock(now_ms=100, monotonic_ms=7)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (105, 12)


def test_a_step_of_the_wall_clock_leaves_monotonic_time_alone() -> None:
    clock = ManualClock(now_ms=100, monotonic_ms=7)
    clock.step_wall(-50)
    assert (clock.now_ms(), clock.monotonic_ms()) == (50, 7)


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(AssertionError):
        ManualClock().advance(-1)
