"""A small trace collector: receives spans over OTLP/HTTP and keeps them in memory.

    with OtlpReceiver() as collector:
        ...                                     # OTEL_EXPORTER_OTLP_ENDPOINT = collector.endpoint
        spans = collector.wait_for(lambda spans: len(spans) == 3)

It is meant for short-lived use within one process: the demo and tests. For longer use, run a
real
collector (docs/tracing.md). It listens on loopback only, and keeps RECEIVED_SPANS_MAX spans.

Requires the package opentelemetry-proto, which is part of `kourou[otlp]`.

State: soft.
"""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from kourou.model.limits import RECEIVED_SPANS_MAX

WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """One span as received.

    Ids are hexadecimal, times are wall time in ns, `parent_id` is "" if there is no parent.
    """

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    failed: bool
    attributes: dict[str, Any] = field(default_factory=dict)
    links: tuple[str, ...] = ()


class _Server(ThreadingHTTPServer):
    """An HTTP server whose clients may be killed in the middle of a request."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class OtlpReceiver:
    """Listens on a free port of 127.0.0.1. `status` is the HTTP status of its responses.

    With `keep` false it accepts exports without decoding or keeping them.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self.status = 200
        self.spans: list[SeenSpan] = []
        self.requests = 0
        self._changed = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def endpoint(self) -> str:
        """The base URL, in the form that OTEL_EXPORTER_OTLP_ENDPOINT expects."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, path: str, body: bytes) -> bool:
        """Handle a request; False if it was not an export of traces."""
        with self._changed:
            self.requests += 1
            if self._keep and path == "/v1/traces" and self.status == 200:
                self.spans += _decoded(body)[: RECEIVED_SPANS_MAX - len(self.spans)]
            self._changed.notify_all()
        return path == "/v1/traces"

    def wait_for(
        self, enough: Callable[[Sequence[SeenSpan]], object], timeout_s: float = WAIT_S
    ) -> list[SeenSpan]:
        """Return the spans once `enough` accepts them; AssertionError after the timeout."""
        with self._changed:
            done = self._changed.wait_for(lambda: enough(self.spans), timeout_s)
            found = list(self.spans)
        names = ", ".join(f"{span.service}: {span.name}" for span in found)
        assert done, f"after {timeout_s} s there are only {len(found)} spans: {names}"
        return found


def _handler_of(receiver: OtlpReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            status = receiver.status if receiver.take(self.path, body) else 404
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
            """Log nothing to stderr."""

    return Handler


def _decoded(body: bytes) -> list[SeenSpan]:
    request = ExportTraceServiceRequest.FromString(body)
    found: list[SeenSpan] = []
    for group in request.resource_spans:
        about = _attributes(group.resource.attributes)
        for scope in group.scope_spans:
            found += [_seen(str(about.get("service.name", "")), span) for span in scope.spans]
    return found


def _seen(service: str, span: Any) -> SeenSpan:
    kinds = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT", 4: "PRODUCER", 5: "CONSUMER"}
    return SeenSpan(
        service=service,
        name=span.name,
        kind=kinds.get(span.kind, str(span.kind)),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        failed=span.status.code == 2,
        attributes=_attributes(span.attributes),
        links=tuple(link.span_id.hex() for link in span.links),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
