"""The dashboard `filters`: messages passed, cost, failing filters."""

from __future__ import annotations

from generators.boards.asking import line, or_0, quantile, rate, stat
from generators.grafana import Dashboard, Panel, Query, Row

FILTERS = Dashboard(
    "filters",
    "Python filters",
    "Selectivity, cost and failures of Python filters.",
    [
        Row(
            "Now",
            [
                stat("Filters", "max(kourou_filters)"),
                stat("Stored versions", "max(kourou_filter_versions)"),
                stat(
                    "Quarantined versions", "max(kourou_filter_quarantined_versions)", bad_above=1
                ),
                stat("Filter servers", "max(kourou_filter_servers)"),
                stat("Registered servers", "sum(kourou_filter_registered)"),
                stat("Workers", "sum(kourou_filter_workers)"),
            ],
        ),
        Row(
            "Selectivity",
            [
                Panel(
                    "Messages per second",
                    [
                        Query(
                            rate("kourou_python_filter_seen_total", "filter"),
                            "{{filter}}, filtered",
                        ),
                        Query(
                            rate("kourou_python_filter_passed_total", "filter"),
                            "{{filter}}, passed",
                        ),
                    ],
                    unit="cps",
                ),
                Panel(
                    "Bytes",
                    [
                        Query(
                            rate("kourou_python_filter_bytes_in_total", "filter"),
                            "{{filter}}, read",
                        ),
                        Query(
                            rate("kourou_python_filter_bytes_out_total", "filter"),
                            "{{filter}}, sent",
                        ),
                    ],
                    unit="Bps",
                ),
                line(
                    "Time per message, p99",
                    quantile(0.99, "kourou_python_filter_message_time", "filter"),
                    "{{filter}}",
                    unit="µs",
                ),
            ],
        ),
        Row(
            "Failures",
            [
                line(
                    "Errors",
                    or_0(rate("kourou_python_filter_errors_total", "filter", "kind")),
                    "{{filter}} {{kind}}",
                    unit="cps",
                ),
                line(
                    "Skipped by failure policy",
                    rate("kourou_python_filter_skipped_total", "filter"),
                    "{{filter}}",
                    unit="cps",
                ),
                line(
                    "Delivered unfiltered by failure policy",
                    rate("kourou_python_filter_unfiltered_total", "filter"),
                    "{{filter}}",
                    unit="cps",
                ),
                line(
                    "Failures counted for quarantine",
                    "sum by (filter, version) (kourou_python_filter_strikes)",
                    "{{filter}} {{version}}",
                ),
                line(
                    "Failed pulls",
                    or_0(rate("kourou_filter_pulls_failed_total", "kind")),
                    "{{kind}}",
                    unit="cps",
                ),
                line(
                    "Workers started",
                    rate("kourou_python_filter_starts_total", "filter"),
                    "{{filter}}",
                    unit="cps",
                ),
            ],
        ),
        Row(
            "Filter servers",
            [
                Panel(
                    "Pulls",
                    [
                        Query(rate("kourou_filter_pulls_total", "node_id"), "server {{node_id}}"),
                        Query(
                            rate("kourou_filter_pulls_ahead_total", "node_id"),
                            "server {{node_id}}, filtered ahead",
                        ),
                    ],
                    unit="cps",
                ),
                line("Long-polling pulls", "kourou_filter_pulls_held", "server {{node_id}}"),
                line("Busy workers", "kourou_filter_workers_busy", "server {{node_id}}"),
                Panel(
                    "Buffered bytes",
                    [
                        Query(
                            "kourou_filter_waiting_bytes",
                            "server {{node_id}}, waiting for a filter",
                        ),
                        Query("kourou_filter_ahead_bytes", "server {{node_id}}, filtered ahead"),
                    ],
                    unit="bytes",
                ),
            ],
        ),
    ],
)
