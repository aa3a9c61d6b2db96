"""The table of metrics keeps to the rules that scrapers and dashboards rely on."""

from __future__ import annotations

import re

from kourou.telemetry.metric_table import BASE_LABELS, METRICS, ServiceKind


def test_names_and_labels_are_well_formed() -> None:
    for spec in METRICS.values():
        assert re.fullmatch(r"(rocketmq|kourou)_[a-z_]+", spec.name)
        assert all(re.fullmatch(r"[a-z_]+", label) for label in spec.labels)
        assert len(set(spec.labels)) == len(spec.labels)
        assert spec.about


def test_no_metric_repeats_a_label_of_its_service() -> None:
    for spec in METRICS.values():
        for service in spec.services:
            assert not set(BASE_LABELS[service]) & set(spec.labels), spec.name


def test_every_metric_is_exported_by_a_service() -> None:
    assert set(BASE_LABELS) == set(ServiceKind)
    assert [spec.name for spec in METRICS.values() if not spec.services] == []
