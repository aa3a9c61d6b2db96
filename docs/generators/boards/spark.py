"""The dashboard `spark`: the queries that turn topics into tables."""

from __future__ import annotations

from generators.boards.asking import line, quantile, rate
from generators.grafana import Dashboard, Row

_QUERY = "{{query}}"
SPARK = Dashboard(
    "spark",
    "Spark",
    "Streaming queries from topics to tables.",
    [
        Row(
            "Queries",
            [
                line("Running", "kourou_etl_query_running", _QUERY),
                line("Rows read", rate("kourou_etl_rows_total", "query"), _QUERY, unit="cps"),
                line(
                    "Rows written",
                    rate("kourou_etl_rows_written_total", "query"),
                    _QUERY,
                    unit="cps",
                ),
                line("Batches", rate("kourou_etl_batches_total", "query"), _QUERY, unit="cps"),
                line(
                    "Batch duration, p99",
                    quantile(0.99, "kourou_etl_batch_latency", "query"),
                    _QUERY,
                    unit="ms",
                ),
                line(
                    "Failures",
                    "sum by (query) (increase(kourou_etl_failures_total[10m]))",
                    _QUERY,
                    about="In the last ten minutes.",
                ),
                line(
                    "Rows behind the watermark",
                    rate("kourou_etl_rows_late_total", "query"),
                    _QUERY,
                    unit="cps",
                ),
                line(
                    "Batches repeated",
                    rate("kourou_etl_batches_repeated_total", "query"),
                    _QUERY,
                    unit="cps",
                ),
                line("Events written", rate("kourou_etl_events_total"), "events", unit="cps"),
                line("Rows of state", "kourou_etl_state_rows", _QUERY),
                line("Memory of state", "kourou_etl_state_bytes", _QUERY, unit="bytes"),
            ],
        ),
    ],
)
