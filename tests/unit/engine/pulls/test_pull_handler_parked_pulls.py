"""Held pulls: woken by growth, by time, by topic; never leaked."""

import random

import pytest

from kourou.engine.pulls import pull_handler as holds_module
from kourou.engine.pulls.pull_handler import ParkedPull, ParkedPulls
from kourou.runtime.core import Peer


def peer(number: int) -> Peer:
    return Peer(number, "local", ("127.0.0.1", number))


def hold(
    number: int, target: tuple[str, int] = ("t", 0), offset: int = 5, at: int = 100
) -> ParkedPull[int]:
    return ParkedPull(peer(number), target, offset, at, number)


def test_there_is_a_limit_and_who_leaves_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds_module, "HOLDS_MAX", 2)
    holds: ParkedPulls[int] = ParkedPulls()
    holds.add(hold(1))
    assert not holds.full
    holds.add(hold(2))
    assert holds.full
    with pytest.raises(AssertionError):
        holds.add(hold(3))
    holds.drop_peer(peer(1))
    assert not holds.full


def test_random_use_never_leaks() -> None:
    rng = random.Random(7)
    holds: ParkedPulls[int] = ParkedPulls()
    expected: dict[int, ParkedPull[int]] = {}
    now = 0
    for number in range(5_000):
        now += rng.randrange(3)
        action = rng.random()
        if action < 0.6:
            new = ParkedPull(
                peer(rng.randrange(20)),
                ("t", rng.randrange(4)),
                rng.randrange(10),
                now + rng.randrange(50),
                number,
            )
            holds.add(new)
            expected[number] = new
        elif action < 0.8:
            queue, grown = rng.randrange(4), rng.randrange(12)
            taken = holds.take_advanced([("t", queue, grown)])
            want = [h for h in expected.values() if h.target[1] == queue and h.offset < grown]
            assert {h.pull for h in taken} == {h.pull for h in want}
            for h in taken:
                del expected[h.pull]
        elif action < 0.9:
            gone = rng.randrange(20)
            holds.drop_peer(peer(gone))
            expected = {n: h for n, h in expected.items() if h.peer.id != gone}
        else:
            for h in holds.take_expired(now):
                assert h.deadline_ms <= now
                del expected[h.pull]
            assert all(h.deadline_ms > now for h in expected.values())
        assert len(holds) == len(expected)
