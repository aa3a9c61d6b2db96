"""The table of open half messages, and how far the two queues are done."""

import random

import pytest

from kourou.engine.transactions.open_halves import OpenHalf, OpenHalves


def table(*offsets: int) -> OpenHalves:
    halves = OpenHalves()
    for offset in offsets:
        halves.open(OpenHalf(offset, offset * 100, 0))
    return halves


def test_nothing_is_done_before_something_was_there() -> None:
    assert OpenHalves().done() == (0, 0)
    assert OpenHalves(7, 3).done() == (7, 3)


def test_the_half_queue_is_done_below_the_lowest_open_one() -> None:
    halves = table(0, 1, 2)
    halves.close(halves.at(1), None)
    halves.noted(0, 1)
    assert halves.done() == (0, 0)
    halves.close(halves.at(0), None)
    halves.noted(1, 0)
    assert halves.done() == (2, 2)
    halves.close(halves.at(2), None)
    halves.noted(2, 2)
    assert halves.done() == (3, 3)


def test_one_that_was_put_back_is_open_at_its_new_place_only() -> None:
    halves = table(0, 1)
    one = halves.at(0)
    halves.move(one, 2, 999, ("g", "k", 1))
    assert (one.offset, one.position) == (2, 999)
    assert [half.offset for half in halves] == [1, 2]
    assert halves.at(0) is None
    assert halves.done() == (1, 0)


def test_a_later_copy_takes_the_place_of_the_former() -> None:
    halves = table(0)
    for offset in (1, 2):
        halves.open_copy(OpenHalf(offset, offset * 100, 0), ("g", "k", 1))
    halves.open_copy(OpenHalf(3, 300, 0), ("g", "k", 2))
    assert [half.offset for half in halves] == [0, 2, 3]


def test_damaged_op_records_hold_up_nobody() -> None:
    halves = table(0, 1)
    halves.noted(4, 0)
    halves.close(halves.at(0), None)
    assert halves.done() == (1, 5)


def test_the_spans_that_a_deletion_would_take() -> None:
    halves = table(0, 1, 2, 5, 6)
    halves.close(halves.at(1), None)
    spans = [(span.first, span.end) for span in halves.spans_before(600, 0)]
    assert spans == [(0, 1), (2, 3), (5, 6)]
    assert [(span.first, span.end) for span in halves.spans_before(601, 2)] == [(2, 3), (5, 7)]
    assert {span.group for span in halves.spans_before(1, 0)} == {"CID_RMQ_SYS_TRANS"}
    assert halves.spans_before(0, 0) == []


def test_offsets_go_up() -> None:
    halves = table(3)
    with pytest.raises(AssertionError):
        halves.open(OpenHalf(3, 1, 0))
    halves.noted(0, 3)
    with pytest.raises(AssertionError):
        halves.noted(0, 3)


@pytest.mark.parametrize("seed", range(20))
def test_progress_is_what_a_reader_of_both_queues_needs(seed: int) -> None:
    """RocketMQ's rule: at or above the half offset, what no op record behind the op offset ends is
    open, and nothing else is."""
    chance = random.Random(seed)
    halves, ops = OpenHalves(), []
    for _ in range(200):
        opened = list(halves)
        if opened and chance.random() < 0.5:
            half = chance.choice(opened)
            halves.close(half, None)
            halves.noted(len(ops), half.offset)
            ops.append(half.offset)
        elif opened and chance.random() < 0.3:
            # A round goes in the order of offsets.
            halves.move(opened[0], halves.half_end, 0, None)
        else:
            halves.open(OpenHalf(halves.half_end, 0, 0))
        half_offset, op_offset = halves.done()
        ended = set(ops[op_offset:])
        found = [n for n in range(half_offset, halves.half_end) if n not in ended]
        assert found == [half.offset for half in halves]
        assert all(one < half_offset for one in ops[:op_offset])
