"""Spans: made, ended, exported in the background; the only home of OpenTelemetry.

Who is traced is decided before any object of OpenTelemetry is made:

    the caller has a sampled span     yes, below it
    the caller has an unsampled one   no, and so it is handed on
    the caller has none               with the chance of `ratio`; below 1 at most `roots_per_s`

The last limit makes the cost of tracing one of time and not of traffic: "one in a hundred" of
50,000 messages a second would be more traces than anybody reads and than the hot path can bear.

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

from kourou.telemetry.span_names import ERROR_TYPE
from kourou.telemetry.tracing_context import TRACE_CONTEXT, TRACEPARENT, context_of
from kourou.telemetry.tracing_setup import ROOTS_PER_S_MAX

__all__ = ["NEW", "SpanKind", "TracedSpan", "Tracing", "continued", "current_context"]

Value = str | int | bool
NEW = b""
"""A parent: there is none, a trace begins here."""

LINKS_MAX = 128
"""More links than a span may have by OpenTelemetry's default are left out."""

_NS_PER_S = 1_000_000_000


class TracedSpan:
    """One span that is recorded. `context` is what travels in frames."""

    __slots__ = ("_span", "context")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.context = pack(span.get_span_context())

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Say more about it."""
        self._span.set_attributes(attributes)

    def link(self, contexts: Sequence[bytes]) -> None:
        """It has to do with these spans as well."""
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
        """It is over; with `error_type` it failed. `end_ns` is wall time, now if None."""
        span = self._span
        if error_type:
            span.set_attribute(ERROR_TYPE, error_type)
            span.set_status(Status(StatusCode.ERROR, error))
        if exception is not None:
            span.record_exception(exception)
        span.end(end_ns)

    def carrier(self) -> dict[str, str]:
        """What a message takes along: `traceparent`, and `tracestate` and `baggage` if any."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier, set_span_in_context(self._span))
        return carrier

    @contextmanager
    def current(self) -> Iterator[None]:
        """The application's spans meanwhile are below this one."""
        token = otel_context.attach(set_span_in_context(self._span))
        try:
            yield
        finally:
            otel_context.detach(token)


class Tracing:
    """Makes the spans of one service. `chance` gives numbers from 0 up to 1, `now_ns` wall time."""

    __slots__ = (
        *("_chance", "_ratio", "_roots", "_roots_per_s", "_second", "_tracer"),
        "now_ns",
        "roots_refused",
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
        self.roots_refused = 0

    # -- who is traced ----------------------------------------------------------------------------

    def decide(self) -> bytes | None:
        """The parent of what the caller is about to do.

        None: there is none, and it is not traced. NEW: a trace begins here. Else the caller's own
        context; `is_sampled` tells whether it is traced.
        """
        around = otel_context.get_current()
        if around:  # as a rule nothing is current, and this is asked for every message
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
            self.roots_refused += 1
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
        """A span below `parent`; None where the application's own sampler says no."""
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
        """A part of `parent`'s work that is over already."""
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
            return current  # the very span, with its trace state
        return set_span_in_context(NonRecordingSpan(unpack(parent)), current)


@contextmanager
def current_context(context: bytes) -> Iterator[None]:
    """The spans and log lines meanwhile belong to a span that somebody else keeps."""
    remote = NonRecordingSpan(unpack(context))
    token = otel_context.attach(set_span_in_context(remote))
    try:
        yield
    finally:
        otel_context.detach(token)


@contextmanager
def continued(carrier: Mapping[str, str]) -> Iterator[None]:
    """What is done meanwhile goes on from what a message took along: its context and baggage."""
    around = otel_context.Context()
    if carrier:
        around = propagate.extract(carrier, around)
    if carrier and not get_current_span(around).get_span_context().is_valid:
        context = context_of(carrier.get(TRACEPARENT) or carrier.get(TRACE_CONTEXT, ""))
        if context is not None:
            around = set_span_in_context(NonRecordingSpan(unpack(context)), around)
    token = otel_context.attach(around)
    try:
        yield
    finally:
        otel_context.detach(token)


def pack(context: SpanContext) -> bytes:
    """A span's identity as frames carry it."""
    return b"%b%b%c" % (
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        int(context.trace_flags) & 0xFF,
    )


def unpack(context: bytes) -> SpanContext:
    """The identity of a span of another process."""
    return SpanContext(
        int.from_bytes(context[:16], "big"),
        int.from_bytes(context[16:24], "big"),
        is_remote=True,
        trace_flags=TraceFlags(context[24]),
    )
