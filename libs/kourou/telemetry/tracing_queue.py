"""The bounded queue between ended spans and the collector, with counters.

    span ends -> BoundedQueue -> BatchSpanProcessor (its own thread) -> CountingExporter -> OTLP

Invariant: exported + failed <= handed; handed - exported - failed <= the queue's bound.

State: soft.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

_log = logging.getLogger("kourou.telemetry")


class CountingExporter(SpanExporter):
    """Counts exported spans, and logs once when exports start to fail or succeed again."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._failing = False
        self._ended = False
        self.exported = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Deliver a batch; called on the processor's thread."""
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        finally:
            failing = result is not SpanExportResult.SUCCESS
            if failing:
                self.failed += len(spans)
            else:
                self.exported += len(spans)
            if failing != self._failing:
                self._failing = failing
                if failing:
                    _log.warning("spans-lost: spans cannot be exported and are lost")
                else:
                    _log.warning("spans-recovered: spans are exported again")
        return result

    def shutdown(self) -> None:
        """Shut down; exports in progress are not retried."""
        if not self._ended:
            self._ended = True
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the inner exporter; this class buffers nothing."""
        return self._inner.force_flush(timeout_millis)


class BoundedQueue(SpanProcessor):
    """Passes on ended spans while fewer than `count_max` are in flight, and drops others."""

    def __init__(self, inner: SpanProcessor, exporter: CountingExporter, count_max: int) -> None:
        self._inner = inner
        self._exporter = exporter
        self._count_max = count_max
        self._lock = threading.Lock()
        self.handed = 0
        self.dropped = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing: only ended spans matter."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue an ended span if there is room; never blocks."""
        exporter = self._exporter
        with self._lock:
            if self.handed - exporter.exported - exporter.failed >= self._count_max:
                self.dropped += 1
                return
            self.handed += 1
        self._inner.on_end(span)

    def shutdown(self) -> None:
        """Export the queued spans, and end the thread."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export the queued spans."""
        return self._inner.force_flush(timeout_millis)
