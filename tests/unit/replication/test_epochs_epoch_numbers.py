"""The number of the next epoch of a static leader."""

from __future__ import annotations

from kourou.replication.epochs import (
    PROMOTION,
    are_rivals,
    last_of_promotion,
    next_epoch,
    promotion_of,
)


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


def test_a_promotion_is_known_by_its_first_epoch() -> None:
    first = next_epoch(64, 1, promoted=True)
    again = next_epoch(first, 1)
    assert promotion_of([]) == promotion_of([64, 128]) == 0
    assert promotion_of([64, first, again, next_epoch(again, 0)]) == first
    second = next_epoch(again, 2, promoted=True)
    assert promotion_of([64, first, again, second]) == second


def test_two_that_began_one_promotion_are_rivals() -> None:
    first, unheard = next_epoch(64, 1, promoted=True), next_epoch(128, 2, promoted=True)
    assert are_rivals(first, unheard)
    assert not are_rivals(first, next_epoch(first, 1)), "it started again"
    assert not are_rivals(first, next_epoch(first, 2, promoted=True)), "it heard of the first"
    assert not are_rivals(64, 129), "nobody was promoted"
    restarted = next_epoch(first, 1)
    assert restarted < last_of_promotion(unheard) < next_epoch(restarted, 2, promoted=True)
