"""Spans of micro-batches, linked to the traces of their messages.

A batch has no parent, because it belongs to all of its messages. So it starts a trace of its own
with links to theirs. Each of these traces gets a span that links back to the batch; so a message's
own trace shows that the message became a row.

State: soft: the exporter's queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kourou.model.units import NS_PER_MS
from kourou.telemetry import span_names as names
from kourou.telemetry.metrics import Family, Labels
from kourou.telemetry.tracing import NEW, SpanKind
from kourou.telemetry.tracing_context import context_of
from kourou.telemetry.tracing_setup import SpanExport
from kourou_spark_etl.progress import BatchProgress

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
