"""The sliding window never lets an unfinished message fall behind the committed offset."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kourou.client.consumer.queue_consumption import Window, WindowLimits


def window_of(*offsets: int) -> Window:
    window = Window(offsets[0])
    window.put(offsets, [10] * len(offsets), offsets[-1] + 1)
    return window


def test_bounds_are_those_of_unfinished_messages():
    window = window_of(3, 4, 5, 6, 7)
    window.finish([4, 7])
    assert window.bounds == (3, 6)
    window.finish([3, 5, 6])
    assert window.bounds == (-1, -1)


def test_filtered_messages_do_not_overtake_unfinished_ones():
    window = window_of(10, 11)
    window.skip_to(25)
    assert window.commit_offset == 10
    window.finish([10, 11])
    assert window.commit_offset == 25


def test_finishing_twice_or_something_unknown_changes_nothing():
    window = window_of(1, 2)
    window.finish([1, 1, 99])
    assert (window.count, window.size_bytes) == (1, 10)


def test_a_dropped_window_is_frozen_at_its_commit_offset():
    window = window_of(1, 2, 3)
    window.finish([1])
    assert window.drop() == 2
    window.finish([2, 3])
    assert window.dropped
    assert (window.commit_offset, window.count, window.size_bytes) == (2, 0, 0)


def test_a_dropped_window_takes_nothing():
    window = window_of(1)
    window.drop()
    with pytest.raises(AssertionError):
        window.put([2], [1], 3)


def test_offsets_only_rise():
    with pytest.raises(AssertionError):
        window_of(5).put([4], [1], 7)


@pytest.mark.feature("F199")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (WindowLimits(count_max=3), "4 messages"),
        (WindowLimits(size_bytes_max=39), "40 bytes"),
        (WindowLimits(span_max=2), "span 3"),
        (WindowLimits(count_max=4, size_bytes_max=40, span_max=3), ""),
    ],
)
def test_each_limit_pauses_pulling_when_exceeded(limits, reason):
    window = window_of(1, 2, 3, 4)
    over = window.over(limits)
    assert (window.exceeded(limits) is None) is not bool(over)
    assert reason in over
    assert bool(over) is bool(reason)


@given(st.lists(st.integers(0, 60), max_size=80))
@pytest.mark.feature("F197", "F228")
def test_any_order_of_finishing_keeps_the_invariant(finishing):
    window = window_of(*range(50))
    unfinished = set(range(50))
    for offset in finishing:
        window.finish([offset])
        unfinished.discard(offset)
        assert window.commit_offset == min(unfinished, default=50)
        assert window.count == len(unfinished)


class WindowMachine(RuleBasedStateMachine):
    """Random pulls and finishes against a plain set."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(7)
        self.next = 7
        self.open: set[int] = set()
        self.committed = 7

    @rule(gaps=st.lists(st.integers(0, 3), max_size=6), tail=st.integers(0, 4))
    def pull(self, gaps, tail):
        offsets = []
        at = self.next
        for gap in gaps:
            offsets.append(at + gap)
            at += gap + 1
        self.next = at + tail
        self.window.put(offsets, [5] * len(offsets), self.next)
        self.open.update(offsets)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data):
        done = data.draw(st.sets(st.sampled_from(sorted(self.open)), min_size=1))
        self.window.finish(done)
        self.open -= done

    @invariant()
    def agrees(self):
        assert self.window.commit_offset == min(self.open, default=self.next)
        assert self.window.commit_offset >= self.committed
        assert self.window.count == len(self.open)
        assert self.window.size_bytes == 5 * len(self.open)
        assert all(self.window.holds(offset) for offset in self.open)
        self.committed = self.window.commit_offset


TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = settings(stateful_step_count=25)
