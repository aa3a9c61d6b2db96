"""How dashboards ask: the shapes of PromQL that they share, and the usual panels.

A counter that nothing has counted yet has no series, as a rule: where 0 is the truth then, a
question ends in `or vector(0)`. `increase` does not see the first thing that such a counter counts,
so `risen` is for those that services show from 0 on.
"""

from __future__ import annotations

from generators.grafana import Panel, Query

LEADS = "and on (instance) kourou_replication_leads == 1"
"""Figures of what lies in the log: its copies tell the same, and are not added to it."""


def rate(metric: str, *by: str, of: str = "") -> str:
    """So many a second, added up by these labels."""
    inner = f"rate({metric}{of}[$__rate_interval])"
    return f"sum by ({', '.join(by)}) ({inner})" if by else f"sum({inner})"


def risen(metric: str, window: str, *by: str) -> str:
    """By how much within this time."""
    inner = f"increase({metric}[{window}])"
    return f"sum by ({', '.join(by)}) ({inner})" if by else f"sum({inner})"


def quantile(share: float, metric: str, *by: str, of: str = "") -> str:
    """What this share of a histogram's values does not exceed."""
    labels = ", ".join((*by, "le"))
    inner = f"rate({metric}_bucket{of}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({labels}) ({inner}))"


def or_0(expression: str) -> str:
    """The same, and 0 where there is no series."""
    return f"{expression} or on() vector(0)"


def stat(
    title: str,
    expression: str,
    *,
    bad_above: float | None = None,
    unit: str = "short",
    about: str = "",
) -> Panel:
    """One figure as it is now."""
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
    """One expression over time."""
    return Panel(title, [Query(expression, legend)], about, unit, width=width)


SENDS = '{request_code=~"send_.*"}'
PULLS = '{request_code="pull_message",is_long_polling="false"}'
