"""Creates and ends spans, with OpenTelemetry.

Sampling is decided before any OpenTelemetry object is created:

    the caller has a sampled span     yes, as its child
    the caller has an unsampled span  no; the unsampled context is passed on
    the caller has no span            with probability `ratio`; below 1 at most `roots_per_s`

The last limit bounds the cost of tracing per unit of time instead of per message: one in a hundred
of 50,000 messages a second would be more traces than are useful and than the hot path can bear.

State: soft. Spans that are not exported when the process dies are lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry import context as otel_context
from opentelemetry import propagate
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from kourou.model.limits import ROOTS_PER_S_MAX
from kourou.telemetry.span_names import ERROR_TYPE
from kourou.telemetry.tracing_context import TRACE_CONTEXT, TRACEPARENT, context_of

__all__ = ["NEW", "SpanKind", "TracedSpan", "Tracing", "continued", "current_context"]

Value = str | int | bool
NEW = b""
"""A parent value: there is no parent, a new trace begins."""

LINKS_MAX = 128
"""Maximum number of links; OpenTelemetry's default limit for a span. The rest is omitted."""

_NS_PER_S = 1_000_000_000


class TracedSpan:
    """One span that is recorded. `context` is its trace context as carried in frames."""

    __slots__ = ("_span", "context")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.context = pack(span.get_span_context())

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes."""
        self._span.set_attributes(attributes)

    def link(self, contexts: Sequence[bytes]) -> None:
        """Link the span to other spans."""
        for context in contexts[:LINKS_MAX]:
            self._span.add_link(unpack(context))

    def end(
        self,
        *,
        error_type: str = "",
        error: str = "",
        exception: BaseException | None = None,
        end_ns: int | None = None,
    ) -> None:
        """End the span; with `error_type` it has failed.

        `end_ns` is wall time; None means now.
        """
        span = self._span
        if error_type:
            span.set_attribute(ERROR_TYPE, error_type)
            span.set_status(Status(StatusCode.ERROR, error))
        if exception is not None:
            span.record_exception(exception)
        span.end(end_ns)

    def properties(self) -> dict[str, str]:
        """Return the trace properties of a message: `traceparent`, `tracestate` and `baggage`."""
        properties: dict[str, str] = {}
        propagate.inject(properties, set_span_in_context(self._span))
        return properties

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it the parent of spans that the application creates within the block."""
        token = otel_context.attach(set_span_in_context(self._span))
        try:
            yield
        finally:
            otel_context.detach(token)


class Tracing:
    """Creates the spans of one service.

    `chance` returns random numbers from 0 up to 1, `now_ns` returns wall time.
    """

    __slots__ = (
        *("_chance", "_ratio", "_roots", "_roots_per_s", "_second", "_tracer"),
        "now_ns",
    )

    def __init__(
        self,
        tracer: Tracer,
        *,
        ratio: float,
        roots_per_s: int = ROOTS_PER_S_MAX,
        chance: Callable[[], float] = random.random,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._tracer = tracer
        self._ratio = ratio
        self._roots_per_s = roots_per_s
        self._chance = chance
        self.now_ns = now_ns
        self._second = 0
        self._roots = 0

    # -- sampling ---------------------------------------------------------------------------------

    def decide(self) -> bytes | None:
        """Return the parent for a new operation of the caller.

        None: there is no parent, and the operation is not traced. NEW: a new trace begins.
        Otherwise the caller's own context; `is_sampled` tells whether it is traced.
        """
        around = otel_context.get_current()
        if around:  # usually there is no current span, and this runs for every message
            current = get_current_span(around).get_span_context()
            if current.is_valid:
                return pack(current)
        return NEW if self._draw() else None

    def _draw(self) -> bool:
        ratio = self._ratio
        if ratio >= 1.0:
            return True
        if self._chance() >= ratio:
            return False
        second = self.now_ns() // _NS_PER_S
        if second != self._second:
            self._second, self._roots = second, 0
        if self._roots >= self._roots_per_s > 0:
            return False
        self._roots += 1
        return True

    # -- spans ------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        kind: SpanKind,
        parent: bytes,
        attributes: Mapping[str, Value],
        *,
        links: Sequence[bytes] = (),
        start_ns: int | None = None,
    ) -> TracedSpan | None:
        """Start a span below `parent`; None if the application's own sampler drops it."""
        span = self._tracer.start_span(
            name,
            self._below(parent),
            kind,
            attributes,
            [Link(unpack(context)) for context in links[:LINKS_MAX]],
            start_ns,
        )
        return TracedSpan(span) if span.is_recording() else None

    def finished(
        self,
        name: str,
        parent: bytes,
        start_ns: int,
        end_ns: int,
        attributes: Mapping[str, Value] | None = None,
    ) -> None:
        """Record a finished part of `parent`'s work."""
        span = self._tracer.start_span(
            name, self._below(parent), attributes=attributes, start_time=start_ns
        )
        span.end(end_ns)

    @staticmethod
    def _below(parent: bytes) -> otel_context.Context:
        current = otel_context.get_current()
        if not parent:
            return set_span_in_context(INVALID_SPAN, current)
        if pack(get_current_span(current).get_span_context()) == parent:
            return current  # the same span object, with its trace state
        return set_span_in_context(NonRecordingSpan(unpack(parent)), current)


@contextmanager
def current_context(context: bytes) -> Iterator[None]:
    """Make spans and log lines within the block belong to a span that another component owns."""
    remote = NonRecordingSpan(unpack(context))
    token = otel_context.attach(set_span_in_context(remote))
    try:
        yield
    finally:
        otel_context.detach(token)


@contextmanager
def continued(properties: Mapping[str, str]) -> Iterator[None]:
    """Continue, within the block, the trace context and baggage that a message carries."""
    around = otel_context.Context()
    if properties:
        around = propagate.extract(properties, around)
    if properties and not get_current_span(around).get_span_context().is_valid:
        context = context_of(properties.get(TRACEPARENT) or properties.get(TRACE_CONTEXT, ""))
        if context is not None:
            around = set_span_in_context(NonRecordingSpan(unpack(context)), around)
    token = otel_context.attach(around)
    try:
        yield
    finally:
        otel_context.detach(token)


def pack(context: SpanContext) -> bytes:
    """Encode a span's identity as carried in frames."""
    return b"%b%b%c" % (
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        int(context.trace_flags) & 0xFF,
    )


def unpack(context: bytes) -> SpanContext:
    """Decode the identity of a span of another process."""
    return SpanContext(
        int.from_bytes(context[:16], "big"),
        int.from_bytes(context[16:24], "big"),
        is_remote=True,
        trace_flags=TraceFlags(context[24]),
    )
