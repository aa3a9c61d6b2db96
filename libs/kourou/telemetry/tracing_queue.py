"""The way of a span from its end to the collector, bounded and counted.

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
    """Counts what leaves, and says once that nothing leaves any more."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._failing = False
        self._ended = False
        self.exported = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Deliver a batch; called in the processor's thread."""
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
                state = (
                    "spans cannot be exported and are lost"
                    if failing
                    else "spans are exported again"
                )
                _log.warning("traces: %s", state)
        return result

    def shutdown(self) -> None:
        """No more spans will come, and what is under way is not tried again."""
        if not self._ended:
            self._ended = True
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return self._inner.force_flush(timeout_millis)


class BoundedQueue(SpanProcessor):
    """Hands ended spans on while fewer than `count_max` are on their way, and drops others."""

    def __init__(self, inner: SpanProcessor, exporter: CountingExporter, count_max: int) -> None:
        self._inner = inner
        self._exporter = exporter
        self._count_max = count_max
        self._lock = threading.Lock()
        self.handed = 0
        self.dropped = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do before it ends."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span that is over, if there is room; never waits."""
        exporter = self._exporter
        with self._lock:
            if self.handed - exporter.exported - exporter.failed >= self._count_max:
                self.dropped += 1
                return
            self.handed += 1
        self._inner.on_end(span)

    def shutdown(self) -> None:
        """Export what waits, and end the thread."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what waits."""
        return self._inner.force_flush(timeout_millis)
