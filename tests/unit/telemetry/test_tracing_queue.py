"""Spans on their way are counted, and never too many."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from kourou.telemetry.tracing_queue import BoundedQueue, CountingExporter


class Collector(SpanExporter):
    def __init__(self) -> None:
        self.result = SpanExportResult.SUCCESS
        self.ended = 0

    def export(self, spans):
        return self.result

    def shutdown(self) -> None:
        self.ended += 1


class Waiting:
    """A processor that keeps what it gets until it is told to export."""

    def __init__(self, exporter: CountingExporter) -> None:
        self.exporter = exporter
        self.spans: list = []

    def on_end(self, span) -> None:
        self.spans.append(span)

    def go(self) -> None:
        spans, self.spans = self.spans, []
        self.exporter.export(spans)


class Site:
    def __init__(self, count_max: int) -> None:
        self.collector = Collector()
        self.exporter = CountingExporter(self.collector)
        self.waiting = Waiting(self.exporter)
        self.queue = BoundedQueue(self.waiting, self.exporter, count_max)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.queue)

    def make(self, count: int) -> None:
        tracer = self.provider.get_tracer("t")
        for _ in range(count):
            tracer.start_span("s").end()


def test_what_does_not_fit_is_dropped_and_counted() -> None:
    site = Site(3)
    site.make(5)
    assert (site.queue.handed, site.queue.dropped, len(site.waiting.spans)) == (3, 2, 3)
    site.waiting.go()
    site.make(2)
    assert (site.queue.handed, site.queue.dropped, site.exporter.exported) == (5, 2, 3)


def test_failures_are_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kourou.telemetry")
    site = Site(10)
    site.collector.result = SpanExportResult.FAILURE
    for _ in range(3):
        site.make(2)
        site.waiting.go()
    assert (site.exporter.exported, site.exporter.failed) == (0, 6)
    site.collector.result = SpanExportResult.SUCCESS
    site.make(1)
    site.waiting.go()
    assert (site.exporter.exported, site.exporter.failed) == (1, 6)
    assert caplog.messages == [
        "spans-lost: spans cannot be exported and are lost",
        "spans-recovered: spans are exported again",
    ]
