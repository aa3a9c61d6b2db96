"""The span of a batch, and what it is linked with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kourou.telemetry.metrics import expose
from kourou.telemetry.tracing import Tracing
from kourou.telemetry.tracing_setup import SpanCounts
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.spans import BatchSpans

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{}-01"


def test_a_batch_is_a_span_linked_with_its_messages() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    export: Any = SimpleNamespace(
        tracing=Tracing(provider.get_tracer("t"), ratio=1.0), counts=SpanCounts(9, 5, 3, 1)
    )
    spans = BatchSpans(export)
    contexts = (TRACE.format(1), TRACE.format(2), "nonsense")
    done = BatchProgress("flights", "id", 7, 40, 5_000, 250, "{}", "x" * 9_000, contexts=contexts)
    trace_id = spans.batch(done, "flights")
    span, *of_messages = exporter.get_finished_spans()
    assert span.name == "process flights"
    assert span.parent is None
    assert format(span.context.trace_id, "032x") == trace_id
    assert (span.start_time, span.end_time) == (5_000_000_000, 5_250_000_000)
    links = [format(link.context.span_id, "016x") for link in span.links]
    assert links == ["b7ad6b7169203331", "b7ad6b7169203332"]
    assert span.attributes is not None
    assert span.attributes["kourou.etl.batch_id"] == 7
    assert span.attributes["messaging.batch.message_count"] == 40
    assert span.attributes["kourou.etl.start_offsets"] == "{}"
    assert len(str(span.attributes["kourou.etl.end_offsets"])) == 4_096
    for one, number in zip(of_messages, "12", strict=True):
        assert one.name == "process flights"
        assert one.parent is not None
        assert format(one.parent.span_id, "016x") == f"b7ad6b716920333{number}"
        assert [link.context.span_id for link in one.links] == [span.context.span_id]
        assert (one.start_time, one.end_time) == (span.start_time, span.end_time)
    page = expose(spans.families({"node_type": "spark-etl"})).decode()
    assert 'kourou_trace_spans_total{node_type="spark-etl"} 5.0' in page
