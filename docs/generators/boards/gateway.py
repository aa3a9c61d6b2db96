"""The dashboard `gateway`: HTTP requests and their latency."""

from __future__ import annotations

from generators.boards.asking import line, or_0, quantile, rate
from generators.grafana import Dashboard, Panel, Query, Row

GATEWAY = Dashboard(
    "gateway",
    "Gateway and console",
    "HTTP requests: rate, latency and resources.",
    [
        Row(
            "Requests",
            [
                line(
                    "By operation",
                    f"topk(10, {rate('kourou_gateway_requests_total', 'operation')})",
                    "{{operation}}",
                    unit="cps",
                ),
                line(
                    "By status",
                    rate("kourou_gateway_requests_total", "status"),
                    "{{status}}",
                    unit="cps",
                ),
                Panel(
                    "Request latency",
                    [
                        Query(quantile(share, "kourou_gateway_request_latency"), name)
                        for share, name in ((0.5, "median"), (0.99, "p99"))
                    ],
                    unit="ms",
                ),
                line("Open requests", "kourou_gateway_requests_open", "requests"),
                line(
                    "Requests rejected",
                    or_0(rate("kourou_gateway_refused_total", "reason")),
                    "{{reason}}",
                    unit="cps",
                ),
                line("Connections", "kourou_gateway_connections", "connections"),
            ],
        ),
        Row(
            "Resources",
            [
                Panel(
                    "Event loop lag",
                    [
                        Query(quantile(share, "kourou_gateway_loop_lag"), name)
                        for share, name in ((0.5, "median"), (0.99, "p99"))
                    ],
                    unit="ms",
                ),
                line("Streams", "kourou_gateway_streams", "streams"),
                line("Leases", "kourou_gateway_leases", "messages"),
                line("Long-polling receives", "kourou_gateway_receives_waiting", "receives"),
                line("Consumer groups with leases", "kourou_gateway_lease_groups", "groups"),
                line("Buffered bodies", "kourou_gateway_body_bytes", "bytes", unit="bytes"),
            ],
        ),
    ],
)
