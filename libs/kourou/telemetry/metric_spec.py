"""The description of a metric, and the services that export metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum


class MetricKind(Enum):
    """The kind of a metric."""

    COUNTER = "counter"  # only increases while the process lives
    GAUGE = "gauge"  # read at each scrape
    HISTOGRAM = "histogram"  # counts observations in buckets


class ServiceKind(StrEnum):
    """The service that exports a metric."""

    BROKER = "broker"
    NAMESRV = "namesrv"
    FILTER_SERVER = "filter-server"
    SPARK_ETL = "spark-etl"
    CONSOLE = "console"


BASE_LABELS: Mapping[ServiceKind, tuple[str, ...]] = {
    ServiceKind.BROKER: ("cluster", "node_type", "node_id"),
    ServiceKind.NAMESRV: ("node_type",),
    ServiceKind.FILTER_SERVER: ("node_type", "node_id"),
    ServiceKind.SPARK_ETL: ("node_type",),
    ServiceKind.CONSOLE: ("node_type",),
}
"""The labels of every sample of a service, in addition to those of the metric."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. `when` states the condition if it is not always exported."""

    name: str
    kind: MetricKind
    about: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    services: tuple[ServiceKind, ...] = (ServiceKind.BROKER,)
    when: str = ""


def counter(
    name: str,
    about: str,
    *labels: str,
    unit: str = "",
    services: tuple[ServiceKind, ...] = (ServiceKind.BROKER,),
    when: str = "",
) -> MetricSpec:
    """Describe a counter."""
    return MetricSpec(name, MetricKind.COUNTER, about, labels, unit, services, when)


def gauge(
    name: str,
    about: str,
    *labels: str,
    unit: str = "",
    services: tuple[ServiceKind, ...] = (ServiceKind.BROKER,),
    when: str = "",
) -> MetricSpec:
    """Describe a gauge."""
    return MetricSpec(name, MetricKind.GAUGE, about, labels, unit, services, when)


def histogram(
    name: str,
    about: str,
    *labels: str,
    unit: str,
    services: tuple[ServiceKind, ...] = (ServiceKind.BROKER,),
) -> MetricSpec:
    """Describe a histogram."""
    return MetricSpec(name, MetricKind.HISTOGRAM, about, labels, unit, services)
