"""Sets up tracing for a broker, if it is enabled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kourou.broker.config import BrokerSettings
from kourou.broker.effect_executor import EffectExecutor
from kourou.telemetry.tracing_setup import start_export, tracing_options

if TYPE_CHECKING:
    from kourou.broker.spans import BrokerSpans

SERVICE = "kourou-broker"


def broker_spans(
    settings: BrokerSettings, environment: Mapping[str, str], service: str = SERVICE
) -> BrokerSpans | None:
    """Return a broker's spans and start their export; None without tracing. Raises ConfigError."""
    options = tracing_options(
        environment,
        service_name=service,
        endpoint=settings.trace_otlp_endpoint or "",
        instance=settings.broker_name,
    )
    if options is None:
        return None
    from kourou.broker.spans import BrokerSpans

    return BrokerSpans(start_export(options))


def executor_of(spans: BrokerSpans | None) -> Callable[..., EffectExecutor]:
    """Return the factory of the effect executor: the plain one without tracing."""
    if spans is None:
        return EffectExecutor
    from kourou.broker.traced_executor import TracedExecutor

    return partial(TracedExecutor, spans)
