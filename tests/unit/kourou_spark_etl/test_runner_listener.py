"""What Spark tells of runs, and whom it is told of."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.runner import BatchListener
from kourou_spark_etl.supervision import QueryState


class Site:
    """A listener, the query that it listens to, and what was heard."""

    def __init__(self) -> None:
        self.state = QueryState("letters", "dead_letters")
        self.heard: list[BatchProgress] = []
        self.listener = BatchListener({"letters": self.state.progressed}, self.heard.append)

    def attempt(self, name: str | None = "letters") -> UUID:
        run = uuid4()
        self.state.starting()
        event: Any = SimpleNamespace(name=name, runId=run)
        self.listener.onQueryStarted(event)
        self.state.running()
        return run

    def idle(self, run: UUID) -> None:
        event: Any = SimpleNamespace(runId=run)
        self.listener.onQueryIdle(event)

    def batch(self, run: UUID, name: str = "letters") -> None:
        report = {"id": "i", "name": name, "batchId": 3, "timestamp": "2026-01-01T00:00:00.000Z"}
        event: Any = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(report), runId=run))
        self.listener.onQueryProgress(event)


@pytest.fixture
def site() -> Site:
    return Site()


def test_one_that_failed_and_finds_nothing_new_works_again(site: Site) -> None:
    """There may be no next dead letter."""
    site.attempt()
    site.state.failed("no broker answers", 0)
    run = site.attempt()
    assert site.state.trouble == "letters: no broker answers"
    site.idle(run)
    assert site.state.trouble == ""
    assert site.state.unready == ""


def test_what_spark_tells_late_of_a_former_run_says_nothing_of_this_one(site: Site) -> None:
    former = site.attempt()
    site.state.failed("no broker answers", 0)
    run = site.attempt()
    site.idle(former)
    site.batch(former)
    assert site.state.unready == "letters: no broker answers"
    assert len(site.heard) == 1, "its batch is done all the same"
    site.batch(run)
    assert site.state.unready == ""
    assert [one.batch_id for one in site.heard] == [3, 3]


def test_queries_of_others_are_nothing_to_it(site: Site) -> None:
    run = site.attempt("stranger")
    site.batch(run, "stranger")
    site.idle(run)
    site.idle(site.attempt(None))
    assert site.heard == []
    assert not site.state.seen_working
