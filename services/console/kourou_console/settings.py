"""The service settings that operations can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kourou_console.metrics.alarms import AlarmThresholds


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """`spark_etl_address` is `host:port` of spark-etl's admin pages, "" if there are none.

    `admin_addresses` are those of brokers and other services by name, as far as configured.
    """

    namesrv_addr: str = ""
    producer_group: str = "KOUROU_CONSOLE"
    spark_etl_address: str = ""
    admin_addresses: Mapping[str, str] = field(default_factory=dict)
    sample_interval_ms: int = 5_000
    thresholds: AlarmThresholds = field(default_factory=AlarmThresholds)
    #: Whether tokens are configured, so that callers differ.
    tokens: bool = False
