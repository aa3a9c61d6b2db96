"""The lag of the gateway's event loop in the rows of `kourou bench gateway`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from kourou_bench.gateway_run import lag_figures, lag_line


@pytest.mark.parametrize("lags", [{}, {0.5: 0, math.inf: 0}])
def test_without_a_measurement_there_is_none(lags: Mapping[float, int]) -> None:
    assert lag_figures(lags) == {}


def test_a_lag_beyond_all_bounds_is_said_to_be_one() -> None:
    figures = lag_figures({0.5: 98, 1_000.0: 99, math.inf: 100})
    assert lag_line(figures) == "gateway loop lag, ms: p50 0.5, p99 1,000, max over 1,000"
