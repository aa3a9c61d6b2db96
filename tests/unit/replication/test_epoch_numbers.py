"""The number of the next epoch of a static leader."""

from __future__ import annotations

from kourou.replication.epoch_numbers import PROMOTION, next_epoch


def test_every_start_opens_a_higher_one_with_the_brokers_own_id() -> None:
    first = next_epoch(0, 0)
    assert (first, next_epoch(first, 0)) == (64, 128)
    assert next_epoch(first, 1) == 129


def test_two_brokers_never_open_the_same_one() -> None:
    opened = [{next_epoch(newest, each) for newest in range(5_000)} for each in range(4)]
    for index, one in enumerate(opened):
        for other in opened[:index]:
            assert not one & other


def test_a_promotion_outdoes_whatever_the_old_leader_opens() -> None:
    old = newest = next_epoch(0, 0)
    for _ in range(1_000):
        old = next_epoch(old, 0)
    promoted = next_epoch(newest, 1, promoted=True)
    assert promoted > old
    assert next_epoch(promoted, 2, promoted=True) > promoted
    full = PROMOTION - 64
    assert next_epoch(full, 3) == PROMOTION + 64 + 3
