"""`--trace`: exports spans to the collector that OpenTelemetry's environment variables name.

State: none; variables are added to the environment, and those that the user has set are kept.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from kourou.service.process_setup import require_group

LOCAL_COLLECTOR = "http://127.0.0.1:4318"
"""The default endpoint of a local collector or Jaeger."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTER, _SAMPLER, _RATIO = (
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
)


def trace_from_here(
    environment: MutableMapping[str, str], *, asked: bool, ratio: float | None = None
) -> str:
    """Prepare the environment for tracing; returns the endpoint, or "" if tracing is disabled.

    An endpoint in the environment is sufficient; `asked` without one selects the local collector.
    `ratio` applies to traces that start here, unless the environment names a sampler.
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
