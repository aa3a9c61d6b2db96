"""A query's thread, with a stand-in for Spark's query."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from kourou.clock import SystemClock
from kourou.telemetry.metric_table import BASE_LABELS, METRICS, ServiceKind
from kourou.telemetry.metrics import expose
from kourou_spark_etl.batch_events import QueryBegan, QueryEnded, QueryFailed
from kourou_spark_etl.job_file import QuerySpec
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.queries import Bench
from kourou_spark_etl.runner import (
    BatchListener,
    QueryCounters,
    QueryPhase,
    QueryRunner,
    QueryState,
    error_line,
)


def test_pauses_double_and_begin_anew_after_a_batch() -> None:
    state = QueryState("q", "lake")
    assert state.phase is QueryPhase.WAITING
    pauses = []
    for _ in range(8):
        state.starting()
        pauses.append(state.failed("no", 0))
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    assert state.trouble == "q: no"
    state.starting()
    state.running()
    assert state.trouble == "q: no", "that it was started again does not mean that it works"
    state.progressed()
    assert state.trouble == ""
    assert state.failed("x" * 5_000, 5) == 1_000
    assert state.again_ms == 1_005
    assert len(state.error) == 2_000
    assert (state.attempts, state.failures) == (9, 9)


def test_it_is_ready_when_it_was_seen_to_work_in_this_attempt() -> None:
    state = QueryState("q", "lake")
    assert state.unready == "q: waiting"
    state.starting()
    assert state.unready == "q: starting"
    state.running()
    assert state.unready == "q: in its first batch"
    state.progressed()
    assert state.unready == ""
    state.failed("no", 0)
    assert state.unready == "q: no"
    state.starting()
    state.progressed()  # Spark may tell before its `start` has returned
    state.running()
    assert state.unready == ""
    for phase in (QueryPhase.ENDED, QueryPhase.OFF):
        assert QueryState("q", "lake", phase).unready == ""


def test_an_error_is_reported_by_its_own_text() -> None:
    wrapped = Exception(
        "[STREAM_FAILED] Query failed with an exception\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 3, in read\n'
        "kourou.errors.DataLoss: the queue orders/a/0 holds 100 to 200\n"
        "\n== Plan ==\nRelation kourou.errors.NotThis: no\n"
    )
    assert error_line(wrapped) == "the queue orders/a/0 holds 100 to 200"
    assert error_line(ValueError("what\nwhy")) == "why"
    assert error_line(ValueError()) == "ValueError"


def test_where_in_java_it_was_is_left_out() -> None:
    wrapped = Exception(
        "An error occurred while calling o66.start.\n"
        "\tat org.apache.spark.sql.Some.thing(Some.scala:320)\n"
        "Caused by: java.io.EOFException: the worker has ended\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "\t... 14 more\n"
        " SQLSTATE: 38000\n"
    )
    assert error_line(wrapped) == "Caused by: java.io.EOFException: the worker has ended"
    lost = "Lost task 0.0: org.apache.spark.SparkException: Python worker exited unexpectedly"
    wrapped = Exception(
        f"[STREAM_FAILED] Query terminated with exception: {lost}\n"
        "\tat org.apache.spark.api.python.Some.thing(Some.scala:615)\n"
        "Caused by: java.io.EOFException\n"
        "\tat java.base/java.io.DataInputStream.readFully(DataInputStream.java:210)\n"
        "\t... 29 more\n"
        "\n"
        "Driver stacktrace: SQLSTATE: XXKST"
    )
    assert error_line(wrapped) == f"[STREAM_FAILED] Query terminated with exception: {lost}"


# -- what the pages show is what was counted, and what the table of metrics says -------------------


def test_pages_show_what_was_counted() -> None:
    state = QueryState("q", "lake")
    figures = QueryCounters([state, QueryState("other", "backlog")])
    state.starting()
    state.running()
    figures.batch(
        BatchProgress("q", "id", 4, 10, 1_000, 250, late_rows=3, state_rows=7, state_bytes=9)
    )
    figures.written("q", 6)
    figures.written("q", None)
    told = figures.statistics()[0]
    assert (told["batches"], told["rows"], told["rows_written"]) == (1, 10, 6)
    assert (told["rows_late"], told["batches_repeated"], told["phase"]) == (3, 1, "running")
    assert told["last"]["batch_id"] == 4
    base = {"node_type": "spark-etl"}
    families = list(figures.families(base, 5))
    shown = {family.name: family for family in families}
    wanted = {spec.name for spec in METRICS.values() if spec.services == (ServiceKind.SPARK_ETL,)}
    assert set(shown) == wanted
    for name, family in shown.items():
        labels = {*METRICS[name].labels, *BASE_LABELS[ServiceKind.SPARK_ETL]}
        assert all(set(sample) == labels for sample, _ in family.samples), name
    page = expose(families).decode()
    assert 'kourou_etl_rows_total{job="lake",node_type="spark-etl",query="q"} 10.0' in page
    assert "kourou_etl_events_total{" in page


def test_who_is_not_to_run_does_not_look_like_who_cannot() -> None:
    states = [QueryState(phase.value, "lake", phase) for phase in QueryPhase]
    (shown,) = [
        family
        for family in QueryCounters(states).families({}, 0)
        if family.name == "kourou_etl_query_running"
    ]
    assert {labels["query"]: value for labels, value in shown.samples} == {
        "waiting": 0,
        "starting": 0,
        "running": 1,
        "failed": 0,
    }


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
