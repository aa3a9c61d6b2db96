"""What is said of one metric, and which services there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum


class MetricKind(Enum):
    """How a value behaves."""

    COUNTER = "counter"  # only grows while the process lives
    GAUGE = "gauge"  # asked for when somebody looks
    HISTOGRAM = "histogram"  # counts by size


class Service(StrEnum):
    """Who shows it."""

    BROKER = "broker"
    NAMESRV = "namesrv"
    FILTER_SERVER = "filter-server"
    SPARK_ETL = "spark-etl"
    CONSOLE = "console"


BASE_LABELS: Mapping[Service, tuple[str, ...]] = {
    Service.BROKER: ("cluster", "node_type", "node_id"),
    Service.NAMESRV: ("node_type",),
    Service.FILTER_SERVER: ("node_type", "node_id"),
    Service.SPARK_ETL: ("node_type",),
    Service.CONSOLE: ("node_type",),
}
"""The labels of every sample of a service, beside those of the metric."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. `when` says so if it is not always shown."""

    name: str
    kind: MetricKind
    about: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    services: tuple[Service, ...] = (Service.BROKER,)
    when: str = ""


def counter(
    name: str,
    about: str,
    *labels: str,
    unit: str = "",
    services: tuple[Service, ...] = (Service.BROKER,),
    when: str = "",
) -> MetricSpec:
    """A metric that only grows."""
    return MetricSpec(name, MetricKind.COUNTER, about, labels, unit, services, when)


def gauge(
    name: str,
    about: str,
    *labels: str,
    unit: str = "",
    services: tuple[Service, ...] = (Service.BROKER,),
    when: str = "",
) -> MetricSpec:
    """A metric that is asked for."""
    return MetricSpec(name, MetricKind.GAUGE, about, labels, unit, services, when)


def histogram(
    name: str,
    about: str,
    *labels: str,
    unit: str,
    services: tuple[Service, ...] = (Service.BROKER,),
) -> MetricSpec:
    """A metric that counts by size."""
    return MetricSpec(name, MetricKind.HISTOGRAM, about, labels, unit, services)
