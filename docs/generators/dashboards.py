"""deploy/grafana/dashboards: the list of dashboards.

tests/integration/test_dashboards.py runs each expression on a real Prometheus that scrapes a
working suite, and requires a result.
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
"""By path, for docs/generate.py."""
