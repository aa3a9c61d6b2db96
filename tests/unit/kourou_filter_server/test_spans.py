"""Which spans a filter server makes for traced pulls, and what stands in them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kourou.errors import Code
from kourou.protocol.messages.filter_server import GetFilterStatistics
from kourou.runtime import Peer, Received, Reply, ReplyTo
from kourou.telemetry.metrics import expose
from kourou.telemetry.tracing import Tracing
from kourou.telemetry.tracing_context import traceparent_of
from kourou.telemetry.tracing_setup import SpanCounts
from kourou_filter_server import spans as module
from kourou_filter_server.interface import BatchEvaluated, EvaluateBatch, Filtered, WorkerEnded
from kourou_filter_server.spans import FilterSpans
from kourou_rigs.filter_bench import GROUP, NAME, TOPIC, a_pull

PEER = Peer(1, "zmq", ("127.0.0.1", 4))
TRACE = bytes(range(1, 25)) + b"\x01"


class Site:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        tracing = Tracing(provider.get_tracer("t"), ratio=0.0)
        export: Any = SimpleNamespace(tracing=tracing, counts=SpanCounts(9, 5, 3, 1))
        self.spans = FilterSpans(export)

    def arrive(self, request: Any, *, trace: bytes = TRACE, number: int = 1) -> ReplyTo:
        to = ReplyTo(PEER, number, False, trace)
        self.spans.arrived([Received(to, request, [], 0, 0, trace)])
        return to

    def ended(self) -> Any:
        (span,) = self.exporter.get_finished_spans()
        return span


def test_a_pull_is_a_span_with_what_its_filter_did() -> None:
    site = Site()
    to = site.arrive(a_pull(7))
    context = site.spans.context(to)
    assert len(context) == len(TRACE)
    assert context[:16] == TRACE[:16]  # the trace goes on, below a span of its own
    assert context != TRACE
    site.spans.filtered(Filtered(to, NAME, 3, 32, 2, 99))
    site.spans.answered(Reply(to, body=(b"12345",)))
    span = site.ended()
    assert span.name == f"filter {TOPIC}"
    found = span.attributes
    assert found["messaging.consumer.group.name"] == GROUP
    assert found["kourou.filter.name"] == NAME
    assert found["kourou.filter.version"] == 3
    assert found["kourou.filter.seen"] == 32
    assert found["kourou.filter.passed"] == 2
    assert found["kourou.filter.micros"] == 99
    assert found["kourou.size_bytes"] == 5
    assert site.spans.context(to) == b""


def test_a_filter_that_failed_is_an_error() -> None:
    site = Site()
    to = site.arrive(a_pull())
    site.spans.answered(Reply(to, Code.FILTER_FAILED, "it raised"))
    span = site.ended()
    assert span.attributes["error.type"] == "FILTER_FAILED"
    assert span.status.description == "it raised"


def test_what_is_not_sampled_is_no_span() -> None:
    site = Site()
    to = site.arrive(a_pull(), trace=TRACE[:24] + b"\0")
    site.spans.filtered(Filtered(to, NAME, 1, 1, 1, 1))
    site.spans.answered(Reply(to))
    assert site.exporter.get_finished_spans() == ()


def test_a_lost_connection_ends_its_spans() -> None:
    site = Site()
    site.arrive(GetFilterStatistics())
    site.spans.disconnected(PEER)
    assert site.ended().attributes["error.type"] == "disconnected"


def test_spans_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_SPANS_MAX", 1)
    site = Site()
    site.arrive(a_pull(), number=1)
    site.arrive(a_pull(), number=2)
    page = expose(site.spans.families({"node_type": "filter-server", "node_id": "0"})).decode()
    assert 'reason="too_many_open"} 1.0' in page
    assert "kourou_trace_spans_total" in page


def a_batch(worker: int, *contexts: bytes) -> EvaluateBatch:
    records = [b"..traceparent\x01" + traceparent_of(one).encode() + b"\x02.." for one in contexts]
    return EvaluateBatch(worker, 1, TOPIC, 0, 7, [b"".join(records[:1]), b"".join(records[1:])])


def test_a_batch_is_a_span_below_each_traced_message_in_it() -> None:
    site = Site()
    other = bytes(range(2, 26)) + b"\x01"
    site.spans.judging(a_batch(4, TRACE, other))
    site.spans.judging(a_batch(5))
    site.spans.evaluated(BatchEvaluated(5, 1, b"\x01"))
    assert site.exporter.get_finished_spans() == ()
    site.spans.evaluated(BatchEvaluated(4, 1, b"\x01\x00\x01", micros=12))
    spans = site.exporter.get_finished_spans()
    assert [span.name for span in spans] == [f"judge {TOPIC}"] * 2
    parents = [format(span.parent.span_id, "016x") for span in spans if span.parent is not None]
    assert parents == [TRACE[16:24].hex(), other[16:24].hex()]
    assert spans[0].attributes is not None
    assert spans[0].attributes["kourou.filter.passed"] == 2
    assert spans[0].attributes["kourou.filter.micros"] == 12
    site.spans.evaluated(WorkerEnded(4, "lost", ""))
    assert len(site.exporter.get_finished_spans()) == 2


def test_a_worker_that_ends_has_judged_nothing() -> None:
    site = Site()
    site.spans.judging(a_batch(4, TRACE))
    site.spans.evaluated(WorkerEnded(4, "time", "too slow"))
    assert "kourou.filter.passed" not in site.ended().attributes


def test_of_a_large_batch_only_a_few_are_traced() -> None:
    site = Site()
    many = [bytes([1, number]) + TRACE[2:] for number in range(40)]
    site.spans.judging(a_batch(4, *many))
    site.spans.evaluated(BatchEvaluated(4, 1, b""))
    assert len(site.exporter.get_finished_spans()) == module.JUDGED_SPANS_MAX
