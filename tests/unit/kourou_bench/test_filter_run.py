"""Figures stand under what was measured, and nothing is measured where no filter server runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.service.processes import Children
from kourou.testing.cluster import Cluster
from kourou_bench import filter_run
from kourou_bench.figures import Figure
from kourou_bench.filter_run import (
    TOGETHER,
    FilterBench,
    _pinging,
    heading,
    p99_ms,
    run_filter_bench,
    together,
)


def test_the_heading_names_the_circumstances() -> None:
    assert heading(FilterBench(1_000, 512, pings=10, rounds=2)) == (
        "filter: 1,000 messages of 512 bytes in 8 queues, one in 100 passes; pulls of 32; "
        "2 × 10 pings; a temporary cluster"
    )


def test_too_few_messages_are_refused() -> None:
    with pytest.raises(ConfigError, match="107 is too few; use at least 108"):
        FilterBench(107)


def test_without_a_jail_nothing_is_measured() -> None:
    with pytest.raises(ConfigError, match="missing: Landlock; seccomp"):
        run_filter_bench(FilterBench(), ("Landlock", "seccomp"), as_json=False)


def test_people_get_a_heading_and_machines_do_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(filter_run, "_measured", lambda settings: iter([Figure("a", "ms", 1.0)]))
    assert run_filter_bench(FilterBench(), (), as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[0] == heading(FilterBench())
    assert run_filter_bench(FilterBench(), (), as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["kind"] == "filter"


def test_cost_and_other_groups_stand_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("a, wall", "a, CPU over plain pull", "another group, p99 alone (1)")
    figures = [Figure(name, "ms", 1.0) for name in names]
    assert [one.name for one in together(figures)] == list(names[1:])
    monkeypatch.setattr(filter_run, "_measured", lambda settings: iter(figures))
    run_filter_bench(FilterBench(), (), as_json=False)
    last = capsys.readouterr().out.partition(TOGETHER)[2].splitlines()[1:]
    assert last == [one.as_text() for one in figures[1:]]


def test_pings_are_another_application_in_a_process_of_its_own(
    kourou_broker: Cluster, tmp_path: Path
) -> None:
    settings = FilterBench(1_000, 64, pings=3)
    with Children(tmp_path) as children:
        driver = _pinging(children, kourou_broker.address, settings, os.sched_getaffinity(0))
        outcome = driver.measure()
    assert outcome.sent == 3
    assert p99_ms(outcome) >= outcome.values["end to end p50"] > 0
