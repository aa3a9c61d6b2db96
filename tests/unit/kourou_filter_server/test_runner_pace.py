"""Quick filters get large batches, slow ones small ones, and none ends up with single messages."""

from __future__ import annotations

import random

import pytest

from kourou_filter_server.runner import BATCH_US, SLOW_MESSAGES, Pace

MOST = 256


def paced(*batches: tuple[int, int]) -> Pace:
    pace = Pace(MOST)
    for count, micros in batches:
        pace.judged(1, count, micros)
    return pace


def test_of_an_unknown_version_little_is_risked() -> None:
    assert Pace(MOST).messages(1) == SLOW_MESSAGES
    assert paced((MOST, 10)).messages(2) == SLOW_MESSAGES


def test_it_may_become_quicker_and_slower() -> None:
    slow = (MOST, MOST * 1_000)
    assert paced((MOST, MOST), slow).messages(1) == 79
    assert paced((MOST, MOST), *[slow] * 6).messages(1) == SLOW_MESSAGES
    assert paced(slow, *[(SLOW_MESSAGES, SLOW_MESSAGES)] * 20).messages(1) == MOST


def test_one_batch_without_messages_says_nothing() -> None:
    assert paced((0, 5_000)).messages(1) == SLOW_MESSAGES
    assert paced((MOST, 100), (0, 5_000)).messages(1) == MOST


@pytest.mark.parametrize("seed", range(20))
def test_batches_stay_within_their_bounds_and_near_their_time(seed: int) -> None:
    """Whatever a message costs, and whatever a batch costs beside it."""
    chance = random.Random(seed)
    each_us, all_us = chance.choice([0.1, 5, 80, 400, 5_000]), chance.choice([0, 20, 3_000])
    pace = Pace(MOST)
    for _ in range(40):
        count = pace.messages(1)
        assert SLOW_MESSAGES <= count <= MOST
        pace.judged(1, count, int(all_us + each_us * count))
    last = pace.messages(1)
    took_us = all_us + each_us * last
    assert last in (SLOW_MESSAGES, MOST) or took_us == pytest.approx(BATCH_US, rel=0.2)
