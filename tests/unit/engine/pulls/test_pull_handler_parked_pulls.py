"""Parked pulls are woken by growth and by time, and never leak."""

import random

import pytest

from kourou.engine.pulls import pull_handler
from kourou.engine.pulls.pull_handler import ParkedPull, ParkedPulls
from kourou.runtime.core import Peer, Received, ReplyTo
from kourou_rigs.engine import pull


def peer(number: int) -> Peer:
    return Peer(number, "local", ("127.0.0.1", number))


def parked(number: int, *, queue_id: int = 0, offset: int = 5, at_ms: int = 100) -> ParkedPull:
    request = pull(offset, queue_id)
    return ParkedPull(Received(ReplyTo(peer(number), 1), request, (), 0), request, at_ms)


def test_there_is_a_limit_and_who_leaves_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_handler, "HOLDS_MAX", 2)
    pulls = ParkedPulls()
    pulls.add(parked(1))
    assert not pulls.full
    pulls.add(parked(2))
    assert pulls.full
    with pytest.raises(AssertionError):
        pulls.add(parked(3))
    pulls.drop_peer(peer(1))
    assert not pulls.full


def test_random_use_never_leaks() -> None:
    rng = random.Random(7)
    pulls = ParkedPulls()
    expected: set[ParkedPull] = set()
    now_ms = 0
    for _ in range(5_000):
        now_ms += rng.randrange(3)
        action = rng.random()
        if action < 0.6:
            one = parked(
                rng.randrange(20),
                queue_id=rng.randrange(4),
                offset=rng.randrange(10),
                at_ms=now_ms + rng.randrange(50),
            )
            pulls.add(one)
            expected.add(one)
        elif action < 0.8:
            queue_id, high = rng.randrange(4), rng.randrange(12)
            woken = {
                one
                for one in expected
                if one.target == ("orders", queue_id) and one.request.queue_offset < high
            }
            assert set(pulls.take_advanced([("orders", queue_id, high)])) == woken
            expected -= woken
        elif action < 0.9:
            gone = peer(rng.randrange(20))
            pulls.drop_peer(gone)
            expected = {one for one in expected if one.received.to.peer != gone}
        else:
            late = {one for one in expected if one.deadline_ms <= now_ms}
            assert set(pulls.take_expired(now_ms)) == late
            expected -= late
        assert len(pulls) == len(expected)
