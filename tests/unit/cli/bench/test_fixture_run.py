"""What a test waits for is measured on the broker that the fixture starts."""

from __future__ import annotations

import json

import pytest

from kourou.cli.bench.fixture_run import fixture_figures, run_fixture_bench


def test_the_first_start_stands_by_itself() -> None:
    figures = list(fixture_figures([(2.0, 2.5, 0.5), (0.2, 0.3, 0.1), (0.1, 0.2, 0.1)]))
    assert [figure.value for figure in figures] == [2_000, 200, 300, 100]


def test_each_step_is_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_fixture_bench(1, as_json=True) == 0
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(figures) == 4
    assert all(one["value"] > 0 for one in figures)
    assert figures[0]["settings"]["kind"] == "fixture"
