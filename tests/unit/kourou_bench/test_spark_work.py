"""Rows of a stream are timed by their own bodies, and rows of before are not counted."""

from __future__ import annotations

import pytest

from kourou.errors import Unavailable
from kourou_bench.spark_costs import Pass
from kourou_bench.spark_work import STREAM_TAG, STREAM_WARM_TAG, Arrivals, _timed


def test_a_row_waited_from_its_send_until_its_batch() -> None:
    arrivals = Arrivals(3)
    arrivals.count([STREAM_WARM_TAG], [b"5"], 9)
    assert arrivals.warm.is_set()
    assert (arrivals.waited_ns, arrivals.batches) == ([], 0)
    arrivals.count([STREAM_TAG, STREAM_WARM_TAG, STREAM_TAG], [b"10", b"5", b"12"], 20)
    assert (arrivals.waited_ns, arrivals.done.is_set()) == ([10, 8], False)
    arrivals.count([], [], 25)
    arrivals.count([STREAM_TAG], [b"30"], 31)
    assert (arrivals.waited_ns, arrivals.batches) == ([10, 8, 1], 2)
    assert arrivals.done.is_set()


def test_a_way_that_loses_rows_has_no_figure() -> None:
    found = _timed("way", lambda: 7, 7)
    assert isinstance(found, Pass)
    assert (found.rows, found.wall_ns > 0, found.cpu_ns >= 0) == (7, True, True)
    with pytest.raises(Unavailable, match="way: 6 rows of 7"):
        _timed("way", lambda: 6, 7)
