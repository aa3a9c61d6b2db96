"""deploy/grafana/dashboards: which dashboards there are.

A test asks each question of a real Prometheus that scrapes a suite at work, and wants an answer
(tests/integration/test_dashboards.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from generators.boards.broker import BROKER
from generators.boards.filters import FILTERS
from generators.boards.gateway import GATEWAY
from generators.boards.groups import GROUPS
from generators.boards.overview import OVERVIEW
from generators.boards.replication import REPLICATION
from generators.boards.spark import SPARK
from generators.grafana import Dashboard

ALL = (OVERVIEW, BROKER, REPLICATION, GROUPS, FILTERS, SPARK, GATEWAY)


def _page(dashboard: Dashboard) -> Callable[[Path], str]:
    return lambda _root: dashboard.page()


PAGES: dict[str, Callable[[Path], str]] = {
    f"deploy/grafana/dashboards/{dashboard.name}.json": _page(dashboard) for dashboard in ALL
}
"""By path, as docs/generate.py wants them."""
