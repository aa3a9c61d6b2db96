"""Converts panels in Python to Grafana's JSON: rows, sizes, units, data sources."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA = 39
PROMETHEUS = {"type": "prometheus", "uid": "kourou-prometheus"}
"""The uid must match deploy/grafana/provisioning/datasources."""

COLUMNS = 24
HEIGHTS = {"timeseries": 8, "stat": 4}
DARK_RED = "dark-red"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and its legend; `{{label}}` is replaced by the label's value."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One or several values of one unit over time, or, as `stat`, current values.

    `unit` is Grafana's: short, bytes, Bps, ms, s, percentunit, cps. A stat is red from `bad_above`
    on. `width` is in columns of 24.
    """

    title: str
    queries: Sequence[Query]
    about: str = ""
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    bad_above: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A heading with its panels."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard. Its uid is fixed, so that links to it stay valid."""

    name: str
    title: str
    about: str
    rows: Sequence[Row]

    def page(self) -> str:
        """The content of the file."""
        return json.dumps(self.model(), indent=1, ensure_ascii=False) + "\n"

    def model(self) -> dict[str, Any]:
        """Grafana's JSON model of the dashboard."""
        return {
            "uid": f"kourou-{self.name}",
            "title": f"Kourou · {self.title}",
            "description": self.about,
            "tags": ["kourou"],
            "schemaVersion": SCHEMA,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": "now-30m", "to": "now"},
            "timezone": "",
            "links": [
                {
                    "type": "dashboards",
                    "tags": ["kourou"],
                    "title": "Kourou",
                    "asDropdown": True,
                    "includeVars": True,
                    "keepTime": True,
                }
            ],
            "annotations": {"list": [_alerts()]},
            "templating": {"list": []},
            "panels": list(_placed(self.rows)),
        }


def _alerts() -> dict[str, Any]:
    """Shows firing alerts as red lines in every graph."""
    return {
        "name": "alerts",
        "enable": True,
        "iconColor": DARK_RED,
        "datasource": PROMETHEUS,
        "expr": 'ALERTS{alertname=~"Kourou.*",alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "step": "30s",
    }


def _placed(rows: Sequence[Row]) -> Sequence[dict[str, Any]]:
    """All panels with IDs and positions, from left to right, then downwards."""
    placed: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": place,
                "panels": [],
            }
        )
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            high = HEIGHTS[panel.kind]
            place = {"x": x, "y": y, "w": panel.width, "h": high}
            placed.append(_panel(len(placed) + 1, panel, place))
            x, height = x + panel.width, max(height, high)
        y += height
    return placed


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bad_above is not None:
        steps.append({"color": DARK_RED, "value": panel.bad_above})
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": PROMETHEUS,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": _LINES if panel.kind == "timeseries" else {},
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": _OPTIONS[panel.kind],
        "targets": [
            {
                "refId": chr(ord("A") + place_of),
                "datasource": PROMETHEUS,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "instant": panel.kind == "stat",
                "range": panel.kind != "stat",
            }
            for place_of, query in enumerate(panel.queries)
        ],
    }


_LINES = {
    "drawStyle": "line",
    "lineWidth": 1,
    "fillOpacity": 8,
    "showPoints": "never",
    # Without a sample there is no line, so that missing values are visible.
    "spanNulls": False,
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
}
