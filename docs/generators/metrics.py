"""docs/reference/metrics.md: every metric that a service shows.

Lives here: the page. May not live here: any metric (kourou.telemetry.metric_table).
"""

from __future__ import annotations

from pathlib import Path

from generators.tables import code, document, head, table

from kourou.telemetry.exporter_table import EXPORTER_METRICS, LEFT_OUT
from kourou.telemetry.metric_table import BASE_LABELS, METRICS, MetricSpec, Service

ABOUT = """\
What `/metrics` of a service's admin page answers, in the text format of Prometheus. A counter
only grows while the process lives and begins at 0 with it; a gauge is read at the moment of the
question."""

EXPORTER = """\
What `/metrics?names=exporter` of a broker answers, so that dashboards made for RocketMQ 4's
exporter work: one scrape job with `params: {names: [exporter]}`. All of them are gauges, as there.
It is computed only when it is asked for; the `rocketmq_client_…` ones are asked of the consumers
at that moment. Every broker answers for what lies on it, and a consumer tells each of its brokers
the same, so add up the former over brokers, and take the `max` of the latter.

A name is on the page while there is something to tell by it. So the two of dead letters,
`rocketmq_topic_dlq_offset` and `rocketmq_group_dlqdiff`, are absent until a group has its first
one, as they are with the exporter: an alarm should ask whether they are above 0, not whether they
are there."""


def page(_root: Path) -> str:
    """RocketMQ's names first, then ours, by name."""
    lines = head("Metrics", ABOUT, "libs/kourou/telemetry/metric_table.py")
    lines += ["Beside the labels listed, every sample says where it comes from:", ""]
    lines += table(
        ("service", "labels of every sample"),
        [
            (service.value, ", ".join(code(name) for name in BASE_LABELS[service]))
            for service in Service
        ],
    )
    theirs = [spec for spec in METRICS.values() if spec.name.startswith("rocketmq_")]
    ours = [spec for spec in METRICS.values() if not spec.name.startswith("rocketmq_")]
    lines += [
        "## Under RocketMQ 5's names",
        "",
        "With RocketMQ's labels, so that dashboards made for it work.",
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
            ("name", "labels", "what it says"),
            [
                (code(spec.name), ", ".join(code(label) for label in spec.labels), spec.about)
                for spec in sorted(EXPORTER_METRICS.values(), key=lambda spec: spec.name)
            ],
        ),
        "What the exporter has besides, and why it is not here; no popular dashboard asks for it:",
        "",
        *table(
            ("name", "because"),
            [(name, reason) for name, reason in LEFT_OUT.items()],
        ),
    ]
    return document(lines)


def _table(specs: list[MetricSpec]) -> list[str]:
    return table(
        ("name", "type", "unit", "labels", "shown by", "what it says"),
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
