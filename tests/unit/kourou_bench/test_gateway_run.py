"""The lag of the gateway's event loop in the rows of `kourou bench gateway`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from kourou_bench import gateway_run
from kourou_bench.driving import Outcome
from kourou_bench.gateway_run import (
    LINES,
    GatewayBench,
    lag_figures,
    lag_line,
    run_gateway_bench,
)
from kourou_bench.measure import Measured, Sample, Scale
from kourou_bench.rows import Name, Work
from kourou_bench.systems import System


class Fixed:
    """One rate in each round; the gateway's loop has lags, too."""

    def __init__(self, lags: Mapping[float, int]) -> None:
        self._lags = lags

    def warm_up(self) -> str:
        return ""

    def sample(self) -> Sample:
        outcome = Outcome(work="send", values={"rate": 50.0}, sent=1, stored=1)
        return Sample(outcome, lags=self._lags)


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of two systems."""

    @contextmanager
    def prepared(system: System, work: Work, scale: Scale) -> Iterator[Measured]:
        gateway = system.name is Name.GATEWAY
        yield Fixed({0.5: 60, 3.0: 99, 20.0: 100, math.inf: 100} if gateway else {})

    monkeypatch.setattr(gateway_run, "prepared", prepared)
    monkeypatch.setattr(gateway_run, "_peers", dict)
    monkeypatch.setattr(gateway_run, "LINES", LINES[:1])


def test_a_row_has_the_lag_of_the_gateways_loop_below_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_gateway_bench(GatewayBench(rounds=2), as_json=False) == 0
    rate, lag = capsys.readouterr().out.splitlines()[-2:]
    assert rate.startswith("send, 64 in flight, msg/s ")
    assert lag == "  gateway loop lag, ms: p50 0.5, p99 3, max 20"


def test_as_json_it_is_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_gateway_bench(GatewayBench(rounds=1), as_json=True) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["loop_lag_ms"] == {"p50": 0.5, "p99": 3.0, "max": 20.0}


@pytest.mark.parametrize("lags", [{}, {0.5: 0, math.inf: 0}])
def test_without_a_measurement_there_is_none(lags: Mapping[float, int]) -> None:
    assert lag_figures(lags) == {}


def test_a_lag_beyond_all_bounds_is_said_to_be_one() -> None:
    figures = lag_figures({0.5: 98, 1_000.0: 99, math.inf: 100})
    assert lag_line(figures) == "gateway loop lag, ms: p50 0.5, p99 1,000, max over 1,000"
