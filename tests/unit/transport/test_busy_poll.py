"""A loop stays awake where input comes at once, and sleeps where it does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from kourou.protocol import kernel
from kourou.transport import busy_poll
from kourou.transport.busy_poll import (
    LONGEST_BREAK,
    SPIN_AFTER,
    SPIN_US,
    BusyPoll,
    descriptor_of,
)


class Rig:
    """A loop whose turns take 100 µs, and what looks for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, window_us: int = 250) -> None:
        self.now_s = 5.0
        self.turns: list[Callable[[], Any]] = []
        self.idle = 0
        monkeypatch.setattr(busy_poll.time, "monotonic", lambda: self.now_s)
        self.poll = BusyPoll(self, window_us, self._idle)  # type: ignore[arg-type]

    def _idle(self) -> None:
        self.idle += 1

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


def test_it_is_awake_for_its_window(rig: Rig) -> None:
    assert not rig.awake
    rig.poll.begin()
    for _ in range(2):
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


def test_idle_is_told_once_the_loop_has_looked_in_vain(rig: Rig) -> None:
    rig.poll.begin()
    rig.turn()
    assert rig.idle == 0
    rig.turn()
    assert rig.idle == 1
    rig.window()
    assert rig.idle == 1


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


def test_after_some_turns_the_kernel_looks_in_the_loops_place(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the loop's own descriptor, and never for so long that others would notice."""
    looks: list[tuple[int, int]] = []
    monkeypatch.setattr(busy_poll.kernel, "spin", lambda fd, us: looks.append((fd, us)))
    rig._get_backend_id = lambda: 7  # type: ignore[attr-defined]  # as uvloop's loops have
    rig.poll = BusyPoll(rig, 1_050)  # type: ignore[arg-type]
    rig.poll.begin()
    for _ in range(SPIN_AFTER):
        rig.turn()
    assert not looks
    rig.window()
    assert {fd for fd, _ in looks} == {7}
    assert len(looks) == 10 - SPIN_AFTER
    assert max(us for _, us in looks) == SPIN_US


async def test_a_loop_is_waited_for_by_a_descriptor_that_shows_its_input() -> None:
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        loop.add_reader(one.fileno(), lambda: None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not kernel.spin(descriptor_of(loop), 100)
        other.send(b"x")
        assert kernel.spin(descriptor_of(loop), 1_000_000)
        loop.remove_reader(one.fileno())
