"""The dashboard `gateway`: what comes over HTTP, and how long it takes.

Lives here: its questions. May not live here: how it looks (generators.grafana).
"""

from __future__ import annotations

from generators.boards.asking import line, or_0, quantile, rate
from generators.grafana import Dashboard, Panel, Query, Row

GATEWAY = Dashboard(
    "gateway",
    "Gateway and console",
    "What comes over HTTP, and how long it takes.",
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
                    "By answer",
                    rate("kourou_gateway_requests_total", "status"),
                    "{{status}}",
                    unit="cps",
                ),
                Panel(
                    "A request takes",
                    [
                        Query(quantile(share, "kourou_gateway_request_latency"), name)
                        for share, name in ((0.5, "median"), (0.99, "99 %"))
                    ],
                    unit="ms",
                ),
                line("Under way", "kourou_gateway_requests_open", "requests"),
                line(
                    "Refused",
                    or_0(rate("kourou_gateway_refused_total", "reason")),
                    "{{reason}}",
                    unit="cps",
                ),
                line("Connections", "kourou_gateway_connections", "connections"),
            ],
        ),
        Row(
            "What it holds for others",
            [
                line("Streams", "kourou_gateway_streams", "streams"),
                line("Leases", "kourou_gateway_leases", "messages"),
                line("Receives that wait", "kourou_gateway_receives_waiting", "receives"),
                line("Groups it is a member of", "kourou_gateway_lease_groups", "groups"),
                line("Bodies under way", "kourou_gateway_body_bytes", "bytes", unit="bytes"),
            ],
        ),
    ],
)
