"""Spark's progress report of a batch as numbers, for metrics, events and spans.

Spans of micro-batches, linked to the traces of their messages.

A batch has no parent, because it belongs to all of its messages. So it starts a trace of its own
with links to theirs. Each of these traces gets a span that links back to the batch; so a message's
own trace shows that the message became a row.

State: soft: the exporter's queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from kourou.model.units import NS_PER_MS
from kourou.telemetry import span_names as names
from kourou.telemetry.metrics import Family, Labels
from kourou.telemetry.tracing import NEW, SpanKind
from kourou.telemetry.tracing_context import context_of
from kourou.telemetry.tracing_setup import SpanExport

OBSERVED = "kourou_traces"
"""The name under which a query observes the trace contexts of its messages."""


class _Source(msgspec.Struct):
    endOffset: Any = None
    startOffset: Any = None


class _Operator(msgspec.Struct):
    numRowsTotal: int = 0
    memoryUsedBytes: int = 0
    numRowsDroppedByWatermark: int = 0


class _Report(msgspec.Struct):
    id: str
    batchId: int
    timestamp: str
    name: str | None = None
    numInputRows: int = 0
    durationMs: dict[str, int] = {}
    sources: list[_Source] = []
    stateOperators: list[_Operator] = []
    eventTime: dict[str, str] = {}
    observedMetrics: dict[str, dict[str, Any]] = {}


_DECODER = msgspec.json.Decoder(_Report)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One batch. Times in ms; offsets are the source's own text; `contexts` are traceparents."""

    query: str
    query_id: str
    batch_id: int
    rows: int
    began_ms: int
    took_ms: int
    start_offsets: str = ""
    end_offsets: str = ""
    late_rows: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str = ""
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    contexts: Sequence[str] = ()


def read_progress(text: str | bytes) -> BatchProgress:
    """Parse a progress report of Spark (`progress.json`)."""
    report = _DECODER.decode(text)
    began = datetime.fromisoformat(report.timestamp)
    source = report.sources[0] if report.sources else _Source()
    seen = report.observedMetrics.get(OBSERVED, {})
    return BatchProgress(
        query=report.name or report.id,
        query_id=report.id,
        batch_id=report.batchId,
        rows=report.numInputRows,
        began_ms=int(began.timestamp() * 1_000),
        took_ms=report.durationMs.get("triggerExecution", 0),
        start_offsets=_text(source.startOffset),
        end_offsets=_text(source.endOffset),
        late_rows=sum(one.numRowsDroppedByWatermark for one in report.stateOperators),
        state_rows=sum(one.numRowsTotal for one in report.stateOperators),
        state_bytes=sum(one.memoryUsedBytes for one in report.stateOperators),
        watermark=report.eventTime.get("watermark", ""),
        durations_ms=report.durationMs,
        contexts=tuple(sorted({text for text in _contexts(seen) if text})),
    )


def _contexts(seen: Mapping[str, Any]) -> Sequence[str]:
    found = seen.get("contexts")
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else ()


def _text(offset: Any) -> str:
    """The offset as a JSON text; some sources report it as a string that contains JSON."""
    if offset is None:
        return ""
    return offset if isinstance(offset, str) else msgspec.json.encode(offset).decode()


OFFSETS_LENGTH = 4_096
"""The maximum length of the offsets; topics with thousands of queues exceed it."""


class BatchSpans:
    """Creates the spans of one service."""

    def __init__(self, export: SpanExport) -> None:
        self._export = export

    def batch(self, done: BatchProgress, job: str) -> str:
        """Create the span of a finished batch. Returns its trace ID in hexadecimal, or ""."""
        links = [found for text in done.contexts if (found := context_of(text)) is not None]
        span = self._export.tracing.start(
            names.span_name(names.PROCESS, done.query),
            SpanKind.CONSUMER,
            NEW,
            {
                names.SYSTEM: names.SYSTEM_VALUE,
                names.OPERATION_NAME: names.PROCESS,
                names.OPERATION_TYPE: names.PROCESS,
                names.BATCH_COUNT: done.rows,
                names.QUERY: done.query,
                names.JOB: job,
                names.BATCH_ID: done.batch_id,
                names.START_OFFSETS: done.start_offsets[:OFFSETS_LENGTH],
                names.END_OFFSETS: done.end_offsets[:OFFSETS_LENGTH],
            },
            links=links,
            start_ns=done.began_ms * NS_PER_MS,
        )
        if span is None:
            return ""
        end_ns = (done.began_ms + done.took_ms) * NS_PER_MS
        span.end(end_ns=end_ns)
        self._of_messages(done, job, links, span.context)
        return span.context.hex()[:32]

    def _of_messages(
        self, done: BatchProgress, job: str, messages: Sequence[bytes], batch: bytes
    ) -> None:
        """Create the corresponding span in the trace of each of these messages."""
        about: dict[str, str | int | bool] = {
            names.SYSTEM: names.SYSTEM_VALUE,
            names.OPERATION_NAME: names.PROCESS,
            names.OPERATION_TYPE: names.PROCESS,
            names.QUERY: done.query,
            names.JOB: job,
            names.BATCH_ID: done.batch_id,
        }
        for context in messages:
            span = self._export.tracing.start(
                names.span_name(names.PROCESS, done.query),
                SpanKind.CONSUMER,
                context,
                about,
                links=[batch],
                start_ns=done.began_ms * NS_PER_MS,
            )
            if span is not None:
                span.end(end_ns=(done.began_ms + done.took_ms) * NS_PER_MS)

    def close(self) -> None:
        """Export the remaining spans; blocks for a moment, so call it in a thread."""
        self._export.close()

    def families(self, base: Labels) -> Iterator[Family]:
        """Metrics about spans."""
        return self._export.counts.families(base)
