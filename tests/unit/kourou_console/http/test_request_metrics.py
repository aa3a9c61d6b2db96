"""What the console shows is what the table of metrics says it shows."""

from __future__ import annotations

import asyncio

from kourou.service.access_metrics import open_family
from kourou.telemetry.metric_table import BASE_LABELS, METRICS, ServiceKind
from kourou.telemetry.metrics import Family, expose
from kourou_console.http.request_metrics import LAG_INTERVAL_S, LoopLag, RequestMetrics

BASE = {"node_type": "console"}


def shown(families: list[Family]) -> dict[str, frozenset[str]]:
    return {
        one.name: frozenset(one.samples[0][0]) if one.samples else frozenset() for one in families
    }


def test_the_tables_metrics_are_shown_and_no_others(console):
    console.get("/v1/me")
    console.get("/v1/nowhere")
    service = console.service
    families = [
        *service._request_metrics.families(BASE),
        *service.gateway.families(BASE),
        open_family(BASE, service.open_because()),
    ]
    found = shown(families)
    listed = {
        name: spec
        for name, spec in METRICS.items()
        if ServiceKind.CONSOLE in spec.services and not spec.when
    }
    assert set(found) == set(listed)
    for name, labels in found.items():
        if labels:
            assert labels == {*listed[name].labels, *BASE_LABELS[ServiceKind.CONSOLE]}
    assert b"kourou_gateway_requests_total" in expose(families)


def test_a_request_is_counted_by_operation_and_status():
    metrics = RequestMetrics()
    metrics.count("send_message", 200, 5_000_000)
    metrics.count("send_message", 503, 1_000)
    metrics.refused["access"] += 1
    page = expose(metrics.families(BASE)).decode()
    assert 'requests_total{node_type="console",operation="send_message",status="503"} 1.0' in page
    assert 'latency_bucket{le="5",node_type="console",operation="send_message"} 2.0' in page
    assert 'refused_total{node_type="console",reason="access"} 1.0' in page


async def test_a_loop_that_is_held_up_is_late():
    """By a clock of the test: the timer that is due at 10 ms is called at 60 ms."""
    times = iter([0.0, LAG_INTERVAL_S + 0.05])
    lag = LoopLag(lambda: next(times, 1.0))
    lag.start()
    while not dict(lag.lags_ms.buckets())["+Inf"]:  # noqa: ASYNC110 - a timer sets no event
        await asyncio.sleep(0)
    lag.stop()
    counts = dict(lag.lags_ms.buckets())
    assert (counts["30"], counts["70"], counts["+Inf"]) == (0, 1, 1)
