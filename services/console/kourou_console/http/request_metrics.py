"""Metrics and spans of the gateway's requests.

Metrics: requests, durations, rejections, delay of the event loop. One span for each traced request
of the API, as a child of the caller's span:

    {method} {path}    SERVER, from the request's header to its response

A caller's `traceparent` decides whether its request is traced; without one, the sampling ratio.

State: soft.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

from aiohttp import web

from kourou.errors import KourouError
from kourou.telemetry import span_names as names
from kourou.telemetry.metric_table import GATEWAY_BOUNDS_MS, LOOP_LAG_BOUNDS_MS
from kourou.telemetry.metrics import Durations, Family, Histogram, Labels
from kourou.telemetry.tracing import SpanKind, TracedSpan, current_context
from kourou.telemetry.tracing_context import TRACEPARENT, context_of, is_sampled
from kourou.telemetry.tracing_setup import SpanExport
from kourou_console.http.responses import status_of
from kourou_console.operation import Operation

LAG_INTERVAL_S = 0.01


class LoopLag:
    """The delay of the running event loop: how long a request waits before it is processed.

    It is measured by a timer and not by CPU time, because a loop whose thread has to wait is
    delayed, too.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.lags_ms = Histogram(LOOP_LAG_BOUNDS_MS)
        self._now = now  # uvloop's clock does not advance within an iteration
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure the running loop until `stop`."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LAG_INTERVAL_S, self._due, self._now() + LAG_INTERVAL_S)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self, due: float) -> None:
        self.lags_ms.observe(max(0.0, self._now() - due) * 1_000)
        self.start()


class RequestMetrics:
    """Counters of one listener; used on its loop."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.times: dict[str, Durations] = {}
        self.refused: Counter[str] = Counter()
        self.loop_lag = LoopLag()
        self.under_way = 0
        self.streams = 0
        #: Set by the listener when it exists.
        self.connections: Callable[[], int] = lambda: 0
        self.cut_off: Callable[[], int] = lambda: 0
        self.body_bytes: Callable[[], int] = lambda: 0

    def count(self, operation: str, status: int, duration_ns: int) -> None:
        """Count a finished request."""
        self.requests[operation, status] += 1
        times = self.times.get(operation)
        if times is None:
            times = self.times[operation] = Durations(GATEWAY_BOUNDS_MS)
        times.observe(duration_ns)

    def families(self, base: Labels) -> Iterator[Family]:
        """All metrics."""
        yield Family.counter(
            "kourou_gateway_requests_total",
            "",
            [
                ({"operation": operation, "status": str(status), **base}, count)
                for (operation, status), count in self.requests.items()
            ],
        )
        yield Family.histogram(
            "kourou_gateway_request_latency",
            "",
            [
                ({"operation": operation, **base}, times.histogram())
                for operation, times in self.times.items()
            ],
        )
        yield Family.histogram("kourou_gateway_loop_lag", "", [(base, self.loop_lag.lags_ms)])
        yield Family.gauge("kourou_gateway_requests_open", "", [(base, self.under_way)])
        yield Family.gauge("kourou_gateway_streams", "", [(base, self.streams)])
        yield Family.gauge("kourou_gateway_connections", "", [(base, self.connections())])
        refused = {**self.refused, "cut_off": self.cut_off()}
        yield Family.counter(
            "kourou_gateway_refused_total",
            "",
            [({"reason": reason, **base}, count) for reason, count in refused.items()],
        )
        yield Family.gauge("kourou_gateway_body_bytes", "", [(base, self.body_bytes())])


class RequestSpans:
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
