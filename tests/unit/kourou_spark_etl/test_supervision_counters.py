"""What the pages show is what was counted, and what the table of metrics says."""

from __future__ import annotations

from kourou.telemetry.metric_table import BASE_LABELS, METRICS, ServiceKind
from kourou.telemetry.metrics import expose
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.supervision import QueryCounters, QueryPhase, QueryState


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
