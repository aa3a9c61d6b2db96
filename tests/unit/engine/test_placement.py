from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.engine.placement import Blank, Run, place
from kourou.errors import MessageIllegal


def test_one_record_that_fits() -> None:
    placed = place(100, [50], 1000)
    assert placed.positions.tolist() == [100]
    assert placed.runs == [Run(0, 1, 100)]
    assert placed.blanks == []
    assert placed.end == 150


@pytest.mark.feature("F065")
def test_eight_bytes_stay_free_for_the_filler() -> None:
    assert place(900, [92], 1000).blanks == []
    placed = place(900, [93], 1000)
    assert placed.blanks == [Blank(900, 100)]
    assert placed.positions.tolist() == [1000]
    assert placed.end == 1093


def test_a_batch_goes_over_several_segments() -> None:
    placed = place(0, [40, 40, 40, 92, 10, 90], 100)
    assert placed.positions.tolist() == [0, 40, 100, 200, 300, 400]
    assert placed.runs == [
        Run(0, 2, 0),
        Run(2, 1, 100),
        Run(3, 1, 200),
        Run(4, 1, 300),
        Run(5, 1, 400),
    ]
    assert placed.blanks == [Blank(80, 20), Blank(140, 60), Blank(292, 8), Blank(310, 90)]
    assert placed.end == 490


def test_the_start_of_a_segment_is_no_end() -> None:
    assert place(1000, [5, 6], 1000).positions.tolist() == [1000, 1005]


def test_no_records_go_nowhere() -> None:
    placed = place(7, [], 100)
    assert placed.end == 7
    assert placed.runs == []


@pytest.mark.parametrize("sizes", [[93], [10, 93], np.array([10, 93])])
def test_a_record_that_fits_no_segment_is_refused(sizes: list[int]) -> None:
    with pytest.raises(MessageIllegal, match="93 bytes"):
        place(0, sizes, 100)
    assert place(0, [92], 100).end == 92


@given(
    st.integers(0, 5_000),
    st.lists(st.integers(8, 400), min_size=1, max_size=40),
    st.integers(408, 2_000),
)
def test_a_batch_is_placed_as_its_records_one_by_one(
    end: int, sizes: list[int], segment_size: int
) -> None:
    if segment_size - end % segment_size < 8:
        end += 8  # no log ever ends so near the end of a segment
    placed = place(end, sizes, segment_size)
    positions: list[int] = []
    blanks: list[Blank] = []
    at = end
    for size in sizes:
        one = place(at, [size], segment_size)
        positions += one.positions.tolist()
        blanks += one.blanks
        at = one.end
    assert placed.positions.tolist() == positions
    assert placed.blanks == blanks
    assert placed.end == at
    assert [run.first for run in placed.runs] == [
        sum(run.records for run in placed.runs[:index]) for index in range(len(placed.runs))
    ]
    for position, size in zip(positions, sizes, strict=True):
        assert position // segment_size == (position + size + 7) // segment_size
    for blank in placed.blanks:
        assert blank.size >= 8
        assert (blank.position + blank.size) % segment_size == 0
