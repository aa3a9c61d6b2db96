"""PromQL expressions that the dashboards share, and the usual panels.

A counter usually has no series until its first increment; where the value 0 is correct in that
case, an expression ends with `or vector(0)`. Because `increase` misses the first increment of such
a counter, `risen` is for counters that services export from 0 on.
"""

from __future__ import annotations

from generators.grafana import Panel, Query

LEADS = "and on (instance) kourou_replication_leads == 1"
"""Restricts log metrics to leaders: followers export the same values, which must not be added."""


def rate(metric: str, *by: str, of: str = "") -> str:
    """Rate per second, summed by these labels."""
    inner = f"rate({metric}{of}[$__rate_interval])"
    return f"sum by ({', '.join(by)}) ({inner})" if by else f"sum({inner})"


def risen(metric: str, window: str, *by: str) -> str:
    """The increase within a time window."""
    inner = f"increase({metric}[{window}])"
    return f"sum by ({', '.join(by)}) ({inner})" if by else f"sum({inner})"


def quantile(share: float, metric: str, *by: str, of: str = "") -> str:
    """A quantile of a histogram."""
    labels = ", ".join((*by, "le"))
    inner = f"rate({metric}_bucket{of}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({labels}) ({inner}))"


def or_0(expression: str) -> str:
    """The expression, or 0 if it has no series."""
    return f"{expression} or on() vector(0)"


def stat(
    title: str,
    expression: str,
    *,
    bad_above: float | None = None,
    unit: str = "short",
    about: str = "",
) -> Panel:
    """A panel with a current value."""
    return Panel(title, [Query(expression)], about, unit, "stat", 4, bad_above)


def line(
    title: str,
    expression: str,
    legend: str = "",
    *,
    unit: str = "short",
    about: str = "",
    width: int = 8,
) -> Panel:
    """A panel with one expression over time."""
    return Panel(title, [Query(expression, legend)], about, unit, width=width)


SENDS = '{request_code=~"send_.*"}'
PULLS = '{request_code="pull_message",is_long_polling="false"}'
