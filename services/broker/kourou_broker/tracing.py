"""Does this broker make spans?

Lives here: that question, and what follows from it for the wiring. May not live here: spans
(kourou_broker.spans), which are imported only if the answer is yes.

State: none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kourou.telemetry.tracing_setup import start_export, tracing_options
from kourou_broker.config import BrokerSettings
from kourou_broker.hands import Hands

if TYPE_CHECKING:
    from kourou_broker.spans import BrokerSpans

SERVICE = "kourou-broker"


def broker_spans(settings: BrokerSettings, environment: Mapping[str, str]) -> BrokerSpans | None:
    """The spans of a broker, exported from now on; None without tracing. Raises ConfigError."""
    options = tracing_options(
        environment,
        service_name=SERVICE,
        endpoint=settings.trace_otlp_endpoint or "",
        instance=settings.broker_name,
    )
    if options is None:
        return None
    from kourou_broker.spans import BrokerSpans

    return BrokerSpans(start_export(options))


def hands_of(spans: BrokerSpans | None) -> Callable[..., Hands]:
    """What makes the broker's hands: plain ones without tracing."""
    if spans is None:
        return Hands
    from kourou_broker.traced_hands import TracedHands

    return partial(TracedHands, spans)
