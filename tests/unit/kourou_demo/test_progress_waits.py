"""A wait ends when it is done, or when nothing has moved for long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kourou_demo import progress_waits as waits
from kourou_demo.progress_waits import STUCK_AFTER_S, ProgressWaits


class HastyClock:
    """So much time passes between any two looks at it."""

    def __init__(self, step_s: float) -> None:
        self._times = self._passing(int(step_s * 1000))

    @staticmethod
    def _passing(step_ms: int) -> Iterator[int]:
        at_ms = 0
        while True:
            yield at_ms
            at_ms += step_ms

    def now_ms(self) -> int:
        return next(self._times)

    monotonic_ms = now_ms


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LOOK_S", 0)


async def test_it_ends_when_it_is_done() -> None:
    faults: list[str] = []
    counts = iter((1, 1, 2, 3))

    async def count() -> int:
        return next(counts)

    assert await ProgressWaits(HastyClock(1), faults).reach("counting", count, 3) == 3
    assert faults == []


async def test_what_moves_is_waited_for_however_long_it_takes() -> None:
    faults: list[str] = []
    count = 0

    def moved() -> int:
        nonlocal count
        count += 1
        return count

    clock = HastyClock(STUCK_AFTER_S * 2)
    await ProgressWaits(clock, faults).wait("counting", moved, lambda: count == 9)
    assert (count, faults) == (9, [])


async def test_what_stands_still_is_a_fault() -> None:
    faults: list[str] = []
    await ProgressWaits(HastyClock(STUCK_AFTER_S), faults).wait("waiting", lambda: 7, lambda: False)
    assert faults == ["waiting: no progress for 40 s"]
