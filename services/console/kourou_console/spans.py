"""One span for each traced request of the API, as a child of the caller's span.

    {method} {path}    SERVER, from the request's header to its response

A caller's `traceparent` decides whether its request is traced; without one, the sampling ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from aiohttp import web

from kourou.errors import KourouError
from kourou.telemetry import span_names as names
from kourou.telemetry.metrics import Family, Labels
from kourou.telemetry.tracing import SpanKind, TracedSpan, current_context
from kourou.telemetry.tracing_context import TRACEPARENT, context_of, is_sampled
from kourou.telemetry.tracing_setup import SpanExport
from kourou_console.operation import Operation
from kourou_console.problems import status_of


class GatewaySpans:
    """The spans of one gateway; used on its loop."""

    def __init__(self, export: SpanExport) -> None:
        self._export = export
        self._tracing = export.tracing

    def begin(self, operation: Operation, request: web.BaseRequest) -> TracedSpan | None:
        """Start the span of a request; None if it is not traced."""
        given = context_of(request.headers.get(TRACEPARENT, ""))
        parent = self._tracing.decide() if given is None else given
        if parent is None or (parent and not is_sampled(parent)):
            return None
        about: dict[str, str | int | bool] = {
            names.HTTP_METHOD: operation.method,
            names.HTTP_ROUTE: operation.path,
            names.OPERATION_NAME: operation.name,
        }
        return self._tracing.start(
            f"{operation.method} {operation.path}", SpanKind.SERVER, parent, about
        )

    @staticmethod
    def around(span: TracedSpan | None, request: web.BaseRequest) -> AbstractContextManager[None]:
        """A context in which spans are children of this span or of the unsampled trace."""
        if span is not None:
            return span.current()
        given = context_of(request.headers.get(TRACEPARENT, ""))
        return nullcontext() if given is None else current_context(given)

    @staticmethod
    def end(span: TracedSpan, error: BaseException | None) -> None:
        """End the span of a finished request."""
        if error is None:
            span.end()
            return
        span.set({names.HTTP_STATUS: int(status_of(error))})
        if isinstance(error, KourouError):
            span.end(error_type=type(error).__name__, error=str(error))
        else:
            span.end(error_type=type(error).__name__)

    def close(self) -> None:
        """Export the remaining spans; blocks for a moment, so call it in a thread."""
        self._export.close()

    def families(self, base: Labels) -> Iterator[Family]:
        """Metrics about spans."""
        return self._export.counts.families(base)
