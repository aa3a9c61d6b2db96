"""What Spark costs is computed as it is named, each round beside itself."""

from __future__ import annotations

import pytest

from kourou_bench.figures import Figure
from kourou_bench.spark_costs import (
    NETWORK,
    PARQUET,
    PULLS,
    STORE,
    Pass,
    reading_figures,
    stream_figures,
)

S = 1_000_000_000


def values(figures: list[Figure]) -> dict[str, float]:
    assert len({figure.name for figure in figures}) == len(figures)
    return {figure.name: figure.value for figure in figures}


def a_round(parquet_s: int, network_s: int) -> dict[str, Pass]:
    return {
        PARQUET: Pass(1_000, parquet_s * S, 1_000_000),
        NETWORK: Pass(1_000, network_s * S, 3_000_000),
        STORE: Pass(1_000, 4 * S, 2_000_000),
        PULLS: Pass(1_000, 8 * S, 9_000_000),
    }


def test_ratios_are_medians_of_rounds_and_not_ratios_of_medians() -> None:
    # Medians of the times are 4 and 5 s; of the ratios 2/1, 4/5, 10/10, that is 1.
    rounds = [a_round(2, 1), a_round(4, 5), a_round(10, 10)]
    found = values(list(reading_figures(128, rounds)))
    assert found["128 B, Parquet"] == 250
    assert found["128 B, network"] == 200
    assert found["128 B, network / Parquet"] == 1
    assert found["128 B, network / Parquet, CPU"] == 3
    assert found["128 B, store / Parquet"] == 1
    assert found["128 B, network / pull consumer"] == pytest.approx(1.6)
    assert found["128 B, pull consumer, CPU"] == 9
    assert len(found) == 14


def test_a_stream_has_its_rate_and_its_quantiles() -> None:
    waited = [number * 1_000_000 for number in range(1, 101)]
    assert values(list(stream_figures(waited, 2 * S, 7))) == {
        "stream, rate": 50,
        "stream, batches": 7,
        "stream, send to foreachBatch, p50": 51,
        "stream, send to foreachBatch, p99": 100,
    }
