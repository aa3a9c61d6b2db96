"""`--trace`: spans of what a command starts, to the collector that OpenTelemetry's variables name.

State: none; the environment is changed, and what the user has set in it stays.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from kourou.service.packages import require_group

LOCAL_COLLECTOR = "http://127.0.0.1:4318"
"""Where a collector, or Jaeger, listens by default."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTER, _SAMPLER, _RATIO = (
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
)


def trace_from_here(
    environment: MutableMapping[str, str], *, asked: bool, ratio: float | None = None
) -> str:
    """Prepare the environment for tracing; where spans go, in words, or "" if there are none.

    An endpoint in the environment is enough; `asked` without one means the local collector. `ratio`
    holds for traces that begin here unless the environment names a sampler.
    """
    endpoint = next((environment[name] for name in _ENDPOINTS if environment.get(name)), "")
    if not endpoint:
        if not asked:
            return ""
        endpoint = environment[_ENDPOINTS[1]] = LOCAL_COLLECTOR
    if environment.get(_EXPORTER) == "none" or environment.get("OTEL_SDK_DISABLED") == "true":
        return ""
    require_group("otlp", "exporting traces")
    if ratio is not None and not environment.get(_SAMPLER):
        environment[_SAMPLER] = "parentbased_traceidratio"
        environment[_RATIO] = str(ratio)
    return endpoint
