"""Pauses between looks for a leader, and what makes a client look."""

from __future__ import annotations

import random

import pytest

from kourou.client.session.connections import Pauses, nobody_leads, was_lost
from kourou.errors import (
    Code,
    DiskFull,
    NotLeader,
    Rejected,
    Throttled,
    TimedOut,
    Unavailable,
    UnknownOutcome,
    error_from_code,
)


def test_pauses_grow_to_a_bound_and_are_half_chance():
    pauses = Pauses(random.Random(1), first_ms=20, longest_ms=100)
    spans = [20, 40, 80, 100, 100]
    for span_ms in spans:
        assert span_ms // 2 <= pauses.next_ms() <= span_ms


def test_clients_do_not_pause_alike():
    firsts = {Pauses(random.Random(seed), first_ms=1_000).next_ms() for seed in range(20)}
    assert len(firsts) > 15


def test_former_pauses_count():
    pauses = Pauses(random.Random(1), first_ms=20, longest_ms=10_000)
    pauses.grow(4)
    assert 160 <= pauses.next_ms() <= 320
    pauses.grow(10_000)
    assert 5_000 <= pauses.next_ms() <= 10_000


@pytest.mark.parametrize(
    ("error", "spare", "lost"),
    [
        (NotLeader("a follower"), True, False),
        (Unavailable("cannot reach it"), True, False),
        (error_from_code(Code.SERVICE_NOT_AVAILABLE, "the broker changes its role"), True, False),
        (error_from_code(Code.OUTCOME_UNKNOWN, "the lead was lost"), False, True),
        (UnknownOutcome("the connection was lost"), False, True),
        (TimedOut("no answer in time"), False, False),
        (DiskFull("full"), False, False),
        (Throttled("busy"), False, False),
        (Rejected("no"), False, False),
    ],
)
def test_what_makes_a_client_look_for_a_leader(error, spare, lost):
    assert (nobody_leads(error), was_lost(error)) == (spare, lost)
