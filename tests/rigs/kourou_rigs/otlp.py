"""A collector for tests, which receives spans over OTLP/HTTP and keeps them.

    with OtlpReceiver() as collector:
        ...                                     # OTEL_EXPORTER_OTLP_ENDPOINT = collector.endpoint
        spans = collector.wait_for(lambda spans: len(spans) == 3)

Requires the package opentelemetry-proto, which comes with `kourou[otlp]`.
"""

from __future__ import annotations

from kourou.telemetry.otlp_receiver import OtlpReceiver as OtlpReceiver
from kourou.telemetry.otlp_receiver import SeenSpan as SeenSpan
