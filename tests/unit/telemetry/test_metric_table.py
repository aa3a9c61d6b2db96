"""The table of metrics keeps to the rules that scrapers and dashboards rely on."""

from __future__ import annotations

import re

from kourou.telemetry.metric_table import METRICS, MetricKind


def test_names_and_labels_are_well_formed() -> None:
    for spec in METRICS.values():
        assert re.fullmatch(r"(rocketmq|kourou)_[a-z_]+", spec.name)
        assert all(re.fullmatch(r"[a-z_]+", label) for label in spec.labels)
        assert not {"cluster", "node_type", "node_id"} & set(spec.labels) or "namesrv" in spec.name
        assert spec.about


def test_only_histograms_have_bounds_and_they_grow() -> None:
    for spec in METRICS.values():
        assert bool(spec.bounds) is (spec.kind is MetricKind.HISTOGRAM)
        assert list(spec.bounds) == sorted(set(spec.bounds))


def test_rocketmq_dashboards_find_their_metrics() -> None:
    assert {
        "rocketmq_messages_in_total",
        "rocketmq_messages_out_total",
        "rocketmq_throughput_in_total",
        "rocketmq_throughput_out_total",
        "rocketmq_message_size",
        "rocketmq_consumer_lag_messages",
        "rocketmq_storage_size",
        "rocketmq_storage_flush_behind_bytes",
    } <= set(METRICS)
