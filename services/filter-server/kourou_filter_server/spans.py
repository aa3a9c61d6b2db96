"""Spans of a filter server for traced pulls, as children of their consumers' spans.

    filter {topic}   a pull, from its arrival to its reply; parent of the broker's spans
    judge {topic}    a batch at a worker, from sending it to its results; child of each traced pull
                     that has messages in it
    {request}        any other request with a sampled context

A filter server starts no traces. Without tracing, no object of this module exists.

State: soft, bounded: open spans. Spans over the limit are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from kourou.errors import Code, error_from_code
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.request import Request
from kourou.runtime import Peer, Received, Reply, ReplyTo
from kourou.telemetry import span_names as names
from kourou.telemetry.metrics import Family, Labels
from kourou.telemetry.tracing import SpanKind, TracedSpan
from kourou.telemetry.tracing_context import contexts_among
from kourou.telemetry.tracing_setup import SpanExport
from kourou_filter_server.interface import BatchEvaluated, EvaluateBatch, Filtered, WorkerEnded
from kourou_filter_server.jobs import YES

OPEN_SPANS_MAX = 4_096
JUDGED_SPANS_MAX = 16
"""The maximum number of `judge` spans of one batch, which can have thousands of messages."""

_WELL = frozenset(
    {
        Code.SUCCESS,
        Code.PULL_NOT_FOUND,
        Code.PULL_RETRY_IMMEDIATELY,
        Code.PULL_OFFSET_MOVED,
    }
)
"""Reply codes that are not errors."""

Value = str | int | bool
_Key = tuple[int, int]


class FilterSpans:
    """The spans of one filter server; used on its loop."""

    def __init__(self, export: SpanExport) -> None:
        self._export = export
        self._tracing = export.tracing
        self._open: dict[_Key, TracedSpan] = {}
        self._refused = 0
        self._judging: dict[int, tuple[EvaluateBatch, list[bytes], int]] = {}

    def arrived(self, received: list[Received]) -> None:
        """Start the spans of new requests."""
        for one in received:
            if one.to.traced and not one.to.oneway:
                self._arrived(one)

    def _arrived(self, received: Received) -> None:
        if len(self._open) >= OPEN_SPANS_MAX:
            self._refused += 1
            return
        name, about = _about(received.request)
        about[names.SYSTEM] = names.SYSTEM_VALUE
        span = self._tracing.start(name, SpanKind.SERVER, received.trace, about)
        if span is not None:
            self._open[_key(received.to)] = span

    def context(self, to: ReplyTo) -> bytes:
        """The context of an open request; empty if it is not traced."""
        span = self._open.get(_key(to))
        return b"" if span is None else span.context

    def filtered(self, effect: Filtered) -> None:
        """Note the filter's statistics for a pull whose reply follows."""
        span = self._open.get(_key(effect.to))
        if span is not None:
            span.set(
                {
                    names.FILTER: effect.name,
                    names.FILTER_VERSION: effect.version,
                    names.FILTER_SEEN: effect.seen,
                    names.FILTER_PASSED: effect.passed,
                    names.FILTER_MICROS: effect.micros,
                }
            )

    def judging(self, effect: EvaluateBatch) -> None:
        """A batch is sent to a worker, which has one at a time."""
        contexts: list[bytes] = []
        for run in effect.records:
            contexts += contexts_among(run, JUDGED_SPANS_MAX - len(contexts))
            if len(contexts) == JUDGED_SPANS_MAX:
                break
        if contexts:
            self._judging[effect.worker] = effect, contexts, self._tracing.now_ns()

    def evaluated(self, item: BatchEvaluated | WorkerEnded) -> None:
        """A worker has filtered its batch, or has ended."""
        effect, contexts, began_ns = self._judging.pop(item.worker, (None, [], 0))
        if effect is None:
            return
        about: dict[str, Value] = {
            names.OPERATION_NAME: names.JUDGE,
            names.DESTINATION: effect.topic,
            names.FILTER_SEEN: effect.count,
        }
        if isinstance(item, BatchEvaluated):
            about[names.FILTER_PASSED] = item.results.count(YES)
            about[names.FILTER_MICROS] = item.micros
        now_ns = self._tracing.now_ns()
        for context in contexts:
            name = names.span_name(names.JUDGE, effect.topic)
            self._tracing.finished(name, context, began_ns, now_ns, about)

    def answered(self, reply: Reply) -> None:
        """End the span of a request that got its reply."""
        span = self._open.pop(_key(reply.to), None)
        if span is None:
            return
        code = int(reply.code)
        size_bytes = sum(map(len, reply.body))
        span.set({names.RESPONSE_CODE: code, names.SIZE_BYTES: size_bytes})
        if code in _WELL:
            span.end()
        else:
            span.end(error_type=error_from_code(code, "").message, error=reply.remark)

    def disconnected(self, peer: Peer) -> None:
        """Drop the spans of a closed connection, whose requests get no replies."""
        for key in [key for key in self._open if key[0] == peer.id]:
            self._open.pop(key).end(error_type="disconnected")

    def close(self) -> None:
        """Export the remaining spans; blocks for a moment, so call it in a thread."""
        self._export.close()

    def families(self, base: Labels) -> Iterator[Family]:
        """Metrics about spans."""
        return self._export.counts.families(base, too_many_open=self._refused)


def _key(to: ReplyTo) -> _Key:
    return to.peer.id, to.correlation


def _about(request: Request) -> tuple[str, dict[str, Value]]:
    """A span's name, and the attributes from the request."""
    if isinstance(request, PullMessage):
        return names.span_name(names.FILTER_PULL, request.topic), {
            names.OPERATION_NAME: names.FILTER_PULL,
            names.DESTINATION: request.topic,
            names.PARTITION: str(request.queue_id),
            names.GROUP: request.consumer_group,
            names.OFFSET: request.queue_offset,
        }
    kind = type(request).__name__
    return kind, {names.OPERATION_NAME: kind}
