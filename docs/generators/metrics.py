"""docs/reference/metrics.md: every metric that a service exports."""

from __future__ import annotations

from pathlib import Path

from generators.tables import code, document, head, table

from kourou.broker.telemetry.exporter_page import EXPORTER_METRICS, LEFT_OUT
from kourou.telemetry.metric_table import BASE_LABELS, METRICS, MetricSpec, ServiceKind

ABOUT = """\
Metrics of `/metrics` on a service's admin page, in the text format of Prometheus. A counter
starts at 0 with the process and only grows; a gauge has the value at the time of the scrape."""

EXPORTER = """\
`/metrics?names=exporter` of a broker, for dashboards made for RocketMQ 4's exporter: use one scrape
job with `params: {names: [exporter]}`. All of these metrics are gauges, as in the exporter. They
are computed at each scrape; for `rocketmq_client_…` the broker requests values from the consumers.
Each broker reports its own data, so sum over brokers. Each consumer reports the same values to all
its brokers, so take the `max` of `rocketmq_client_…`.

A metric without data is absent. `rocketmq_topic_dlq_offset` and `rocketmq_group_dlqdiff` are absent
until a group has its first dead letter, as in the exporter: an alert should compare them with 0,
not check whether they exist."""


def page(_root: Path) -> str:
    """RocketMQ's metrics first, then Kourou's, by name."""
    lines = head("Metrics", ABOUT, "libs/kourou/telemetry/metric_table.py")
    lines += ["Every sample also has labels for its origin:", ""]
    lines += table(
        ("service", "labels of every sample"),
        [
            (service.value, ", ".join(code(name) for name in BASE_LABELS[service]))
            for service in ServiceKind
        ],
    )
    theirs = [spec for spec in METRICS.values() if spec.name.startswith("rocketmq_")]
    ours = [spec for spec in METRICS.values() if not spec.name.startswith("rocketmq_")]
    lines += [
        "## Under RocketMQ 5's names",
        "",
        "With RocketMQ's labels, so that dashboards made for RocketMQ 5 work.",
        "",
        *_table(theirs),
        "## Kourou's own",
        "",
        *_table(ours),
        "## Under the names of RocketMQ 4's exporter",
        "",
        EXPORTER,
        "",
        *table(
            ("name", "labels", "description"),
            [
                (code(spec.name), ", ".join(code(label) for label in spec.labels), spec.about)
                for spec in sorted(EXPORTER_METRICS.values(), key=lambda spec: spec.name)
            ],
        ),
        "Metrics of the exporter that Kourou does not have; no popular dashboard uses them:",
        "",
        *table(
            ("name", "reason"),
            [(name, reason) for name, reason in LEFT_OUT.items()],
        ),
    ]
    return document(lines)


def _table(specs: list[MetricSpec]) -> list[str]:
    return table(
        ("name", "type", "unit", "labels", "exposed by", "description"),
        [
            (
                code(spec.name),
                spec.kind.value,
                spec.unit,
                ", ".join(code(label) for label in spec.labels),
                ", ".join(service.value for service in spec.services),
                spec.about + (f"; {spec.when}" if spec.when else ""),
            )
            for spec in sorted(specs, key=lambda spec: spec.name)
        ],
    )
