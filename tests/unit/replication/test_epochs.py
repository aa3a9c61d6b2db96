"""Two histories of leaders are compared by a few pairs of integers."""

from __future__ import annotations

import random

import pytest

from kourou.errors import Corrupt
from kourou.model.limits import EPOCHS_SENT_MAX
from kourou.replication.epochs import (
    PROMOTION,
    Epochs,
    are_rivals,
    last_of_promotion,
    next_epoch,
    promotion_of,
)


def history(*pairs: tuple[int, int], end: int) -> Epochs:
    return Epochs(pairs, end)


def test_the_epoch_at_a_position_is_that_of_the_byte_before():
    epochs = history((3, 100), (5, 260), end=300)
    assert [epochs.epoch_at(at) for at in (0, 1, 100, 101, 260, 261, 300)] == [0, 0, 0, 3, 3, 5, 5]
    assert epochs.last == epochs.newest == 5
    assert epochs.start_of(3) == 100
    assert epochs.start_of(4) is None


def test_a_run_ends_where_the_next_epoch_starts():
    epochs = history((3, 100), (5, 260), end=300)
    assert epochs.run_from(0) == (0, 0, 100)
    assert epochs.run_from(120) == (3, 120, 260)
    assert epochs.run_from(260) == (5, 260, 300)


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next():
    epochs = history((1, 10), end=20)
    epochs.open(2, 20)
    assert (epochs.newest, epochs.last) == (2, 1)
    epochs.open(4, 20)
    epochs.extend(30)
    assert epochs.opened() == ((1, 10), (4, 20))
    epochs.truncate(20)
    assert (epochs.newest, epochs.end) == (1, 20)


def test_an_epoch_may_start_an_empty_log():
    epochs = Epochs()
    epochs.open(1, 0)
    epochs.extend(8)
    assert (epochs.opened(), epochs.last) == (((1, 0),), 1)
    assert epochs.summary() == ((1, 0),)
    epochs.truncate(0)
    assert (epochs.opened(), epochs.newest) == ((), 0)


@pytest.mark.parametrize(
    ("mine", "other", "common"),
    [
        (history(end=80), history(end=50), 50),
        (history((3, 100), end=200), history((3, 100), end=150), 150),
        (history((3, 100), (5, 150), end=200), history((3, 100), end=180), 150),
        (history((5, 100), end=200), history((3, 90), end=180), 90),
        (history((5, 0), end=200), history((3, 0), end=180), 0),
        (history((2, 10), (5, 60), end=90), history((2, 10), (3, 40), (4, 70), end=99), 40),
        (history((2, 10), end=90), Epochs(), 0),
    ],
)
def test_both_agree_up_to_the_end_of_the_newest_epoch_they_share(
    mine: Epochs, other: Epochs, common: int
):
    assert mine.common(other.summary(), other.end) == common
    assert other.common(mine.summary(), mine.end) == common
    assert mine.is_certain(other.summary())


def test_a_history_reported_in_part_is_asked_for_again_further_down():
    other = Epochs([(2 * each, 10 * each) for each in range(1, 201)], 2_010)
    mine = Epochs([(2, 10), (4, 20), (5, 30)], 100)
    asked, below = 0, other.end
    while True:
        told = other.summary(below)
        assert len(told) <= EPOCHS_SENT_MAX
        below = mine.common(told, below)
        asked += 1
        if mine.is_certain(told):
            break
    assert below == 30
    assert asked == 2


def test_the_common_position_is_that_of_the_bytes_themselves():
    """Histories made as leaders make them: one leader an epoch, followers are cut and copied."""
    chance = random.Random(7)
    for _ in range(300):
        logs = [bytearray() for _ in range(3)]
        views = [Epochs() for _ in range(3)]
        for epoch in range(1, 9):
            leader = chance.randrange(3)
            views[leader].open(epoch, views[leader].end)
            size = chance.randint(1, 4)
            logs[leader] += bytes([epoch]) * size
            views[leader].extend(len(logs[leader]))
            follower = chance.randrange(3)
            common = views[leader].common(views[follower].summary(), views[follower].end)
            upto = chance.randint(common, len(logs[leader]))
            logs[follower] = logs[leader][:upto]
            views[follower] = views[leader].copy()
            views[follower].truncate(upto)
        for one, mine in zip(logs, views, strict=True):
            for two, other in zip(logs, views, strict=True):
                same = 0
                while same < min(len(one), len(two)) and one[same] == two[same]:
                    same += 1
                assert mine.common(other.summary(), other.end) == same


@pytest.mark.parametrize("pairs", [((3, 100), (3, 120)), ((3, 100), (4, 100)), ((3, 300),)])
def test_pairs_that_do_not_ascend_are_damage(pairs: tuple[tuple[int, int], ...]):
    with pytest.raises(Corrupt):
        Epochs(pairs, 200)


# -- the number of the next epoch of a static leader -----------------------------------------------


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
