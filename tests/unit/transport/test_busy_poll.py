"""A loop stays awake where input comes at once, and sleeps where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kourou.transport import busy_poll
from kourou.transport.busy_poll import LONGEST_BREAK, BusyPoll


class Rig:
    """A loop whose turns take 100 µs, and what looks for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, window_us: int = 250) -> None:
        self.now_s = 5.0
        self.turns: list[Callable[[], Any]] = []
        monkeypatch.setattr(busy_poll.time, "monotonic", lambda: self.now_s)
        self.poll = BusyPoll(self, window_us)  # type: ignore[arg-type]

    def call_soon(self, call: Callable[[], Any]) -> Any:
        self.turns.append(call)
        return self

    def cancel(self) -> None:
        self.turns.clear()

    @property
    def awake(self) -> bool:
        return bool(self.turns)

    def turn(self) -> None:
        due, self.turns = self.turns, []
        self.now_s += 0.0001
        for call in due:
            call()

    def window(self) -> None:
        """Nothing comes in it."""
        while self.awake:
            self.turn()


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


@pytest.mark.parametrize("work_s", [0.0, 0.01])
def test_it_is_awake_for_its_window_however_long_its_own_work_took(rig: Rig, work_s: float) -> None:
    assert not rig.awake
    rig.poll.begin()
    rig.now_s += work_s
    for _ in range(4):
        rig.turn()
        assert rig.awake
    rig.turn()
    assert not rig.awake


def test_more_work_begins_the_window_anew(rig: Rig) -> None:
    rig.poll.begin()
    rig.turn()
    rig.turn()
    rig.poll.met()
    rig.poll.begin()
    assert len(rig.turns) == 1, "one look a turn, however much is begun"
    rig.turn()
    rig.turn()
    assert rig.awake


def test_windows_in_which_nothing_comes_are_left_out_more_and_more(rig: Rig) -> None:
    begun = []
    for number in range(200):
        rig.poll.begin()
        if rig.awake:
            begun.append(number)
        rig.window()
    assert begun[:6] == [0, 2, 6, 14, 30, 62]
    assert begun[7] - begun[6] == LONGEST_BREAK + 1
    while not rig.awake:
        rig.poll.begin()
    rig.poll.met()
    rig.window()
    rig.poll.begin()
    assert not rig.awake, "only the next one is left out"
    rig.poll.begin()
    assert rig.awake


def test_what_comes_while_it_sleeps_proves_nothing(rig: Rig) -> None:
    rig.poll.begin()
    rig.window()
    rig.poll.met()
    rig.poll.begin()
    assert not rig.awake


def test_it_stops(rig: Rig) -> None:
    rig.poll.begin()
    rig.poll.stop()
    assert not rig.awake
    rig.poll.stop()
    rig.poll.begin()
    assert rig.awake


def test_without_a_window_it_never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    none = Rig(monkeypatch, window_us=0)
    none.poll.begin()
    assert not none.awake
