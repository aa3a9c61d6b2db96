"""What filtering costs and saves is computed as it is named."""

from __future__ import annotations

import pytest

from kourou_bench.figures import Figure
from kourou_bench.filter_costs import (
    Cost,
    beside_figures,
    cost_figures,
    middle,
)

PLAIN = Cost(1_000, 1_000, 200_000, 4_000_000, {"broker": 1_000_000, "it": 0, "client": 2_000_000})
PYTHON = Cost(
    1_000, 10, 2_000, 9_000_000, {"broker": 1_500_000, "client": 500_000, "it": 5_500_000}
)


def values(figures: list[Figure]) -> dict[str, float]:
    assert len({figure.name for figure in figures}) == len(figures)
    return {figure.name: figure.value for figure in figures}


def test_costs_are_a_message_of_the_backlog_and_beside_the_plain_way() -> None:
    figures = list(cost_figures({"plain": PLAIN, "Python": PYTHON}, "plain"))
    assert values(figures) == pytest.approx(
        {
            "plain, wall": 4,
            "plain, CPU": 3,
            "plain, CPU of broker": 1,
            "plain, CPU of client": 2,
            "Python, wall": 9,
            "Python, CPU": 7.5,
            "Python, CPU of broker": 1.5,
            "Python, CPU of client": 0.5,
            "Python, CPU of it": 5.5,
            "Python, CPU over plain": 4.5,
            "Python, bytes saved": 99,
        }
    )
    assert {figure.unit for figure in figures if "bytes" not in figure.name} == {"µs/msg"}


def test_a_round_is_compared_with_itself() -> None:
    figures = values(list(beside_figures("4", [1.0, 10.0, 2.0], [2.0, 11.0, 2.0])))
    assert figures == pytest.approx(
        {
            "another group, p99 alone (4)": 2,
            "… with hostile filters (4)": 2,
            "… ratio (4)": 1.1,
        }
    )
    with pytest.raises(ValueError, match="zip"):
        list(beside_figures("4", [1.0], []))


def test_the_middle_reading_is_the_one_between_cheap_and_dear_ones() -> None:
    dear = Cost(1_000, 10, 2_000, 1, {"it": 9_000_000})
    assert middle([PYTHON, PLAIN, dear]) is PYTHON
    assert middle([PYTHON, PLAIN]) is PLAIN
    assert middle([dear]) is dear
