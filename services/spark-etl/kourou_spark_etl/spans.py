"""Spans of micro-batches, linked to the traces of messages that were in them.

A batch has no parent: it is as much below each of its messages as below any other. So it begins a
trace of its own and is linked with theirs. In the trace of each message that it was told of, one
span says the same, linked with the batch: so a message's own trace shows that it became rows.

State: soft: the exporter's queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kourou.telemetry import span_names as names
from kourou.telemetry.metrics import Family, Labels
from kourou.telemetry.tracing import NEW, SpanKind
from kourou.telemetry.tracing_context import context_of
from kourou.telemetry.tracing_setup import SpanExport
from kourou_spark_etl.progress import Progress

OFFSETS_LENGTH = 4_096
"""Of a topic with thousands of queues not all offsets are told."""

_NS_PER_MS = 1_000_000


class BatchSpans:
    """Makes the spans of one service."""

    def __init__(self, export: SpanExport) -> None:
        self._export = export

    def batch(self, done: Progress, job: str) -> str:
        """A batch is done; returns its trace id in hexadecimal, "" if it is not traced."""
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
            start_ns=done.began_ms * _NS_PER_MS,
        )
        if span is None:
            return ""
        end_ns = (done.began_ms + done.took_ms) * _NS_PER_MS
        span.end(end_ns=end_ns)
        self._of_messages(done, job, links, span.context)
        return span.context.hex()[:32]

    def _of_messages(
        self, done: Progress, job: str, messages: Sequence[bytes], batch: bytes
    ) -> None:
        """The same below each of these messages; they are as few as the batch's links."""
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
                start_ns=done.began_ms * _NS_PER_MS,
            )
            if span is not None:
                span.end(end_ns=(done.began_ms + done.took_ms) * _NS_PER_MS)

    def close(self) -> None:
        """Export what is there, for a moment at most; call it in a thread."""
        self._export.close()

    def families(self, base: Labels) -> Iterator[Family]:
        """What became of spans, as metrics."""
        return self._export.counts.families(base)
