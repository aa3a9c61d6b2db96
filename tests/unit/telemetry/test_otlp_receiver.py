"""The small collector takes what OpenTelemetry's exporter sends."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from kourou.telemetry.otlp_receiver import OtlpReceiver


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_spans_arrive(compression: Compression) -> None:
    with OtlpReceiver() as collector:
        provider = TracerProvider(shutdown_on_exit=False)
        url = f"{collector.endpoint}/v1/traces"
        provider.add_span_processor(
            SimpleSpanProcessor(OTLPSpanExporter(endpoint=url, compression=compression))
        )
        with provider.get_tracer("t").start_as_current_span("outer"):
            provider.get_tracer("t").start_span("inner", attributes={"n": 1}).end()
        provider.shutdown()
        inner, outer = collector.wait_for(lambda spans: len(spans) == 2)
    assert (inner.name, inner.parent_id, inner.attributes) == ("inner", outer.span_id, {"n": 1})
    assert (outer.parent_id, outer.trace_id) == ("", inner.trace_id)


def test_waiting_in_vain_says_what_came() -> None:
    with OtlpReceiver() as collector:
        with pytest.raises(AssertionError, match="only 0 spans"):
            collector.wait_for(lambda spans: spans, timeout_s=0)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{collector.endpoint}/elsewhere", data=b"")
        refused.value.close()
