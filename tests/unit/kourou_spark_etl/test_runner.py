"""A query's thread, with a stand-in for Spark's query."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from kourou.clock import SystemClock
from kourou_spark_etl.batch_events import QueryBegan, QueryEnded, QueryFailed
from kourou_spark_etl.job_file import QuerySpec
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.queries import Bench
from kourou_spark_etl.runner import BatchListener, QueryRunner
from kourou_spark_etl.supervision import QueryPhase, QueryState

SPEC = QuerySpec("q", "lake", 1_000)


class Query:
    """Is in the middle of batch 3; ends it when it was waited for three times."""

    isActive = True

    def __init__(self, *, ends: bool = False) -> None:
        self.waited = 0
        self.stopped = threading.Event()
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.ends = ends
        self.busy = True

    def awaitTermination(self, timeout: int) -> bool:
        self.waited += 1
        self.started.set()
        assert self.ends or self.go_on.wait(60)
        return self.ends

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self.busy}

    @property
    def lastProgress(self) -> dict[str, Any]:
        return {"batchId": 3 if self.waited < 3 else 4}

    def stop(self) -> None:
        self.stopped.set()


def made(begin: Any) -> tuple[QueryRunner, list[Any], Bench]:
    error_line: list[Any] = []
    nothing: Any = None
    bench = Bench(nothing, "", nothing, nothing, SystemClock())
    state = QueryState("q", "lake")
    return (
        QueryRunner(SPEC, state, bench, SystemClock(), error_line.append, begin),
        error_line,
        bench,
    )


def test_it_is_stopped_when_its_batch_is_done() -> None:
    query = Query()
    runner, error_line, _ = made(lambda spec, bench: query)
    runner.start()
    assert query.started.wait(60)
    assert runner.state.phase is QueryPhase.RUNNING
    runner.stop()
    query.go_on.set()
    assert runner.join(60)
    assert query.stopped.is_set()
    assert query.waited == 3, "the batch had its time"
    assert error_line == [QueryBegan("q", "lake", 1), QueryEnded("q")]


def test_an_idle_one_is_stopped_at_once() -> None:
    query = Query()
    query.busy = False
    runner, _, _ = made(lambda spec, bench: query)
    runner.start()
    assert query.started.wait(60)
    runner.stop()
    query.go_on.set()
    assert runner.join(60)
    assert query.stopped.is_set()


def test_it_fails_waits_and_is_stopped_in_the_meantime() -> None:
    failed = threading.Event()
    closed: list[str] = []

    def begin(spec: QuerySpec, bench: Bench) -> Any:
        bench.closing.append(lambda: closed.append("sampler"))
        raise ValueError("no such topic")

    runner, error_line, bench = made(begin)
    runner._notify = lambda event: (
        error_line.append(event),
        isinstance(event, QueryFailed) and failed.set(),
    )
    runner.start()
    assert failed.wait(60)
    assert runner.state.phase is QueryPhase.FAILED
    assert runner.state.trouble == "q: no such topic"
    runner.stop()
    assert runner.join(60), "the pause is cut short"
    assert error_line[1] == QueryFailed("q", "no such topic", 1_000)
    assert closed == ["sampler"]
    assert bench.closing == []


def test_one_that_ends_by_itself_has_ended() -> None:
    runner, error_line, _ = made(lambda spec, bench: Query(ends=True))
    runner.start()
    assert runner.join(60)
    assert runner.state.phase is QueryPhase.ENDED
    assert error_line[-1] == QueryEnded("q")


# -- what Spark tells of runs, and whom it is told of ----------------------------------------------


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
