"""Figures become a page that Prometheus's own parser understands."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kourou.telemetry import metrics
from kourou.telemetry.metrics import Durations, Family, Histogram, expose

Sample = tuple[str, tuple[tuple[str, str], ...]]


def parsed(page: bytes) -> dict[Sample, float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_counters_and_gauges() -> None:
    page = expose(
        [
            Family.counter(
                "rocketmq_messages_in_total",
                samples=[
                    ({"cluster": "c", "topic": 'odd"\n\\'}, 3),
                    ({"cluster": "c", "topic": "T"}, 4),
                ],
            ),
            Family.gauge("rocketmq_topic_number", "So many topics", [({}, 7)]),
            Family.gauge("rocketmq_storage_size"),
        ]
    )
    assert parsed(page) == {
        ("rocketmq_messages_in_total", (("cluster", "c"), ("topic", 'odd"\n\\'))): 3,
        ("rocketmq_messages_in_total", (("cluster", "c"), ("topic", "T"))): 4,
        ("rocketmq_topic_number", ()): 7,
    }
    assert b"# HELP rocketmq_topic_number So many topics\n" in page
    assert b"# HELP rocketmq_storage_size Bytes of the commit log (bytes)\n" in page


def test_histograms() -> None:
    histogram = Histogram((1.0, 10.0, 1024.0))
    for value in (0.5, 1.0, 5.0, 5_000.0):
        histogram.observe(value)
    histogram.observe(1024.0, 2)
    assert histogram.buckets() == [("1", 2), ("10", 3), ("1024", 5), ("+Inf", 6)]
    found = parsed(
        expose([Family.histogram("rocketmq_message_size", "", [({"topic": "T"}, histogram)])])
    )
    name, labels = "rocketmq_message_size", (("topic", "T"),)
    assert found[name + "_count", labels] == 6
    assert found[name + "_sum", labels] == 0.5 + 1 + 5 + 5_000 + 2_048
    assert found[name + "_bucket", (("le", "10"), *labels)] == 3


def test_counts_of_others_and_durations() -> None:
    counted = Histogram.counted((1, 10), [2, 0, 3], 70)
    assert counted.buckets() == [("1", 2), ("10", 2), ("+Inf", 5)]
    assert counted.total == 70
    with pytest.raises(AssertionError, match="one count a bucket"):
        Histogram.counted((1, 10), [2, 3], 70)
    durations = Durations((1, 3))
    for duration_ns in (999_999, 1_000_000, 1_000_001, 9_000_000):
        durations.observe(duration_ns)
    assert durations.histogram().buckets() == [("1", 2), ("3", 3), ("+Inf", 4)]
    assert durations.histogram().total == 12


def test_unknown_names_and_wrong_kinds_are_bugs() -> None:
    with pytest.raises(AssertionError, match="not in the table"):
        expose([Family.gauge("kourou_typo")])
    with pytest.raises(AssertionError, match="is a counter"):
        expose([Family.gauge("rocketmq_messages_in_total")])
    with pytest.raises(AssertionError, match="bounds grow"):
        Histogram((2.0, 1.0))


def test_a_label_that_should_not_be_one_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SERIES_MAX", 3)
    samples = [({"topic": str(number)}, 1) for number in range(10)]
    assert len(parsed(expose([Family.counter("rocketmq_messages_in_total", "", samples)]))) == 3
