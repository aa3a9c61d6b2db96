"""A query's life: pauses, and what is said of it."""

from __future__ import annotations

from kourou.telemetry.metric_table import BASE_LABELS, METRICS, ServiceKind
from kourou.telemetry.metrics import expose
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.supervision import QueryCounters, QueryPhase, QueryState, error_line


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
