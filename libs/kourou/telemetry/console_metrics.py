"""The console's metrics, a part of the metric table."""

from __future__ import annotations

from kourou.telemetry.metric_spec import MetricSpec, ServiceKind, counter, gauge, histogram

_CONSOLE = (ServiceKind.CONSOLE,)

CONSOLE_METRICS: tuple[MetricSpec, ...] = (
    counter(
        "kourou_gateway_requests_total",
        "HTTP requests answered; the operation is page for requests outside the API",
        "operation",
        "status",
        services=_CONSOLE,
    ),
    histogram(
        "kourou_gateway_request_latency",
        "Time of a request, from its header to its answer; of a stream, as long as it lasted",
        "operation",
        unit="ms",
        services=_CONSOLE,
    ),
    histogram(
        "kourou_gateway_loop_lag",
        "How late the event loop runs a timer that is due every 10 ms",
        unit="ms",
        services=_CONSOLE,
    ),
    gauge(
        "kourou_gateway_requests_open",
        "Requests that have no answer yet, streams not counted",
        services=_CONSOLE,
    ),
    gauge("kourou_gateway_streams", "Callers that follow a stream of events", services=_CONSOLE),
    gauge("kourou_gateway_connections", "Open HTTP connections", services=_CONSOLE),
    counter(
        "kourou_gateway_refused_total",
        "Requests and connections refused before an operation saw them, by why",
        "reason",
        services=_CONSOLE,
    ),
    gauge(
        "kourou_gateway_body_bytes",
        "Budget that bodies under way take",
        unit="bytes",
        services=_CONSOLE,
    ),
    gauge("kourou_gateway_leases", "Messages under lease by HTTP clients", services=_CONSOLE),
    gauge("kourou_gateway_receives_waiting", "Receives that wait for a message", services=_CONSOLE),
    gauge(
        "kourou_gateway_lease_groups",
        "Consumer groups of which the gateway is a member",
        services=_CONSOLE,
    ),
)
"""In the order of the reference page."""
