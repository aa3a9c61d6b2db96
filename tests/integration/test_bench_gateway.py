"""`kourou bench gateway` measures what it says, and counts what it measures."""

from __future__ import annotations

import json
import math

import pytest

from kourou_bench import gateway_run
from kourou_bench.gateway_run import LINES, GatewayBench, run_gateway_bench


@pytest.mark.slow
def test_every_row_by_the_gateway_and_by_our_client(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gateway_run, "_peers", dict)
    # One of each kind of work; starting servers takes most of the time.
    lines = tuple(line for line in LINES if line.name in ("send-64", "consume"))
    monkeypatch.setattr(gateway_run, "LINES", lines)
    bench = GatewayBench(rounds=1, seconds=0.1, warm_seconds=0.0, messages=1_000)
    assert run_gateway_bench(bench, as_json=True) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row["row"] for row in rows] == [line.name for line in lines]
    for row in rows:
        assert row["gateway"] > 0
        assert math.isclose(row["ratio"], row["gateway"] / row["zeromq"])
        lag = row["loop_lag_ms"]
        assert lag["p50"] <= lag["p99"] <= lag["max"]
