"""A few flights that the demo traces through all services.

All messages of these flights belong to one trace, in all acts. If no collector is configured, the
demo runs its own and traces nothing else; the final report then lists the services in the trace.
Several flights are traced, because a killed process loses its last spans.

State: soft.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kourou.telemetry.tracing_context import TRACEPARENT, traceparent_of
from kourou_demo.flights import Flight

if TYPE_CHECKING:
    from kourou.telemetry.otlp_receiver import SeenSpan

FLIGHTS_FOLLOWED = 10
EXPORTER = "opentelemetry.exporter.otlp.proto.http"
_OFF = ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "true")
_HERE = {
    "OTEL_TRACES_SAMPLER": "parentbased_always_off",
    "OTEL_BSP_SCHEDULE_DELAY": "500",
}
"""Only these flights are traced, and spans are exported soon, because processes are killed."""


@dataclass(slots=True)
class Traced:
    """The trace in the final report. `services`: operations by service name.

    `trace_id` is "" without tracing; `services` is None if an external collector receives the
    spans.
    """

    trace_id: str = ""
    services: Mapping[str, Sequence[str]] | None = None
    spans: int = 0

    def as_json(self) -> dict[str, str | Mapping[str, Sequence[str]] | None]:
        """The values for the final report; null where unknown."""
        services = None if self.services is None else dict(self.services)
        return {"trace_id": self.trace_id or None, "trace_services": services}


@dataclass(slots=True)
class Followed:
    """The traced flights by row number, and the trace context of their messages; "" without
    tracing.
    """

    traceparent: str = ""
    rows: frozenset[int] = field(default_factory=frozenset)

    def choose(self, flights: Sequence[Flight]) -> None:
        """Choose those that arrived latest, because they pass all filters."""
        latest = sorted(flights, key=lambda flight: (-(flight.arrival_delay or 0), flight.row))
        if self.traceparent:
            self.rows = frozenset(flight.row for flight in latest[:FLIGHTS_FOLLOWED])

    def properties(self, row: int, others: Mapping[str, str] | None = None) -> dict[str, str]:
        """Properties of a flight's message: `others`, and the trace context if it is traced."""
        found = dict(others or {})
        if row in self.rows:
            found[TRACEPARENT] = self.traceparent
        return found


class Collected:
    """The demo's trace, and its spans unless an external collector receives them."""

    def __init__(self, *, traced: bool) -> None:
        self._context = secrets.token_bytes(24) + b"\x01"
        self.followed = Followed(traceparent_of(self._context) if traced else "")
        self._spans: list[SeenSpan] | None = None

    def collect_into(self, spans: list[SeenSpan]) -> None:
        """Spans that are exported from now on are appended to this list."""
        self._spans = spans

    def traced(self) -> Traced:
        """What is known of the trace so far."""
        if not self.followed.traceparent:
            return Traced()
        trace_id = self._context[:16].hex()
        if self._spans is None:
            return Traced(trace_id)
        services: dict[str, set[str]] = {}
        count = 0
        for span in self._spans:
            if span.trace_id == trace_id:
                services.setdefault(span.service, set()).add(span.name)
                count += 1
        named = {name: sorted(services[name]) for name in sorted(services)}
        return Traced(trace_id, named, count)


@contextmanager
def collected(collector: str, environment: MutableMapping[str, str]) -> Iterator[Collected]:
    """Start the demo's trace; spans are collected until the end of the block.

    `collector` is the endpoint that already receives spans; "" means none. If packages are missing
    or tracing is disabled, there is no trace, and no error.
    """
    if collector or any(environment.get(name, "").lower() == value for name, value in _OFF):
        yield Collected(traced=bool(collector))
        return
    if not _installed():
        yield Collected(traced=False)
        return
    from kourou.telemetry.otlp_receiver import OtlpReceiver

    with OtlpReceiver() as receiver:
        here = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, **_HERE}
        before = {name: environment.get(name) for name in here}
        environment.update(here)
        found = Collected(traced=True)
        found.collect_into(receiver.spans)
        try:
            yield found
        finally:
            for name, value in before.items():
                if value is None:
                    del environment[name]
                else:
                    environment[name] = value


def _installed() -> bool:
    try:
        return find_spec(EXPORTER) is not None
    except ModuleNotFoundError:
        return False
