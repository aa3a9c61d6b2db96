"""Decides whether tracing is enabled and where spans are exported, and starts the export.

The standard variables override Kourou's settings, so that a platform can turn tracing on and off:

    OTEL_SDK_DISABLED=true                        off
    OTEL_TRACES_EXPORTER=none                     off; the only other supported value is `otlp`
    OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT          on, with this endpoint
    OTEL_EXPORTER_OTLP_[TRACES_]PROTOCOL          only http/protobuf
    OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG  the ratio of traces that begin here
    OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES   the resource attributes of the process
    OTEL_BSP_SCHEDULE_DELAY, OTEL_EXPORTER_OTLP_HEADERS, OTEL_PROPAGATORS, …
                                                  as defined by OpenTelemetry's packages

Without any of them, and without a setting, there is no tracing: OpenTelemetry is not even imported.

State: soft: the queue of spans, the exporter's counts, and the number of clients per exporter.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kourou.errors import ConfigError, MissingPackages
from kourou.model.limits import ROOTS_PER_S_MAX
from kourou.telemetry.metrics import Family, Labels
from kourou.telemetry.span_names import SCOPE, SERVICE_INSTANCE, SERVICE_NAME, SERVICE_VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from kourou.telemetry.tracing import Tracing

QUEUE_SPANS_MAX = 4_096
"""Maximum number of queued spans; more are dropped and counted."""

CLOSE_MS_MAX = 2_000
"""How long a close waits for the last spans to be exported."""

_TRACES_PATH = "/v1/traces"
_SAMPLERS = {
    "always_on": 1.0,
    "parentbased_always_on": 1.0,
    "always_off": 0.0,
    "parentbased_always_off": 0.0,
}
_RATIO_SAMPLERS = ("traceidratio", "parentbased_traceidratio")
_log = logging.getLogger("kourou.telemetry")


@dataclass(frozen=True, slots=True)
class TracingOptions:
    """Where spans are exported, and how many.

    `endpoint` "" uses OpenTelemetry's default. `roots_per_s` limits new traces.
    """

    endpoint: str
    ratio: float
    service_name: str
    instance: str = ""
    roots_per_s: int = ROOTS_PER_S_MAX


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """Spans since the start: queued, exported, dropped because the queue was full, failed."""

    handed: int = 0
    exported: int = 0
    dropped: int = 0
    failed: int = 0

    def families(self, base: Labels, *, too_many_open: int | None = None) -> Iterator[Family]:
        """Return the counts as metrics.

        `too_many_open`, if given, is the number of spans that were not created.
        """
        yield Family.counter("kourou_trace_spans_total", "", [(base, self.exported)])
        lost = {"queue_full": self.dropped, "export_failed": self.failed}
        if too_many_open is not None:
            lost["too_many_open"] = too_many_open
        yield Family.counter(
            "kourou_trace_spans_dropped_total",
            "",
            [({"reason": reason, **base}, count) for reason, count in lost.items()],
        )


# -- configuration --------------------------------------------------------------------------------


def tracing_options(
    environment: Mapping[str, str],
    *,
    service_name: str,
    endpoint: str = "",
    ratio: float = 1.0,
    instance: str = "",
) -> TracingOptions | None:
    """Combine environment and settings; None: no tracing.

    Raises ConfigError for an unsupported value.
    """

    def given(*names: str) -> str:
        return next((value for name in names if (value := environment.get(name, "").strip())), "")

    if given("OTEL_SDK_DISABLED").lower() == "true":
        return None
    exporter = given("OTEL_TRACES_EXPORTER").lower()
    if exporter == "none":
        return None
    if exporter not in ("", "otlp"):
        raise ConfigError(
            f"OTEL_TRACES_EXPORTER={exporter} is not supported", hint="use otlp or none"
        )
    url, base = given("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), given("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not (url or base or endpoint or exporter):
        return None
    if url:
        _traces_url(url)
    elif base or endpoint:
        url = _traces_url(base or endpoint)
    protocol = given("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in ("", "http/protobuf"):
        raise ConfigError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol} is not supported",
            hint="use http/protobuf, usually at port 4318",
        )
    return TracingOptions(
        url,
        _ratio(given("OTEL_TRACES_SAMPLER").lower(), given("OTEL_TRACES_SAMPLER_ARG"), ratio),
        given("OTEL_SERVICE_NAME") or _named_in(given("OTEL_RESOURCE_ATTRIBUTES")) or service_name,
        instance,
    )


def _named_in(attributes: str) -> str:
    """Return the service name in `key=value,key=value` (percent-encoded); "" if it is absent."""
    pairs = (pair.partition("=") for pair in attributes.split(","))
    return next(
        (unquote(value.strip()) for key, _, value in pairs if key.strip() == SERVICE_NAME), ""
    )


def _traces_url(endpoint: str) -> str:
    """Return the URL for traces; `endpoint` is a base URL or the whole URL."""
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"{endpoint!r} is not an OTLP endpoint", hint="use the form http://host:4318"
        )
    url = endpoint.rstrip("/")
    return url if url.endswith(_TRACES_PATH) else url + _TRACES_PATH


def _ratio(sampler: str, argument: str, ratio: float) -> float:
    if not sampler:
        return ratio
    if sampler in _SAMPLERS:
        return _SAMPLERS[sampler]
    if sampler not in _RATIO_SAMPLERS:
        raise ConfigError(
            f"OTEL_TRACES_SAMPLER={sampler} is not supported", hint="use parentbased_traceidratio"
        )
    try:
        ratio = float(argument or "1")
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ConfigError(
            f"OTEL_TRACES_SAMPLER_ARG={argument} is invalid", hint="use a number from 0 to 1"
        )
    return ratio


# -- export ---------------------------------------------------------------------------------------


class SpanExport:
    """Tracing with an exporter of its own. `close` exports the queued spans and ends it."""

    def __init__(self, tracing: Tracing, provider: Any, queue: Any, exporter: Any) -> None:
        self.tracing = tracing
        self._provider = provider
        self._queue = queue
        self._exporter = exporter

    @property
    def counts(self) -> SpanCounts:
        """The counts so far."""
        queue, exporter = self._queue, self._exporter
        return SpanCounts(queue.handed, exporter.exported, queue.dropped, exporter.failed)

    def close(self, timeout_ms: int = CLOSE_MS_MAX) -> None:
        """Export the queued spans for at most `timeout_ms`. Blocks the calling thread."""
        ender = threading.Thread(
            target=self._provider.shutdown, name="kourou-trace-end", daemon=True
        )
        ender.start()
        ender.join(timeout_ms / 1000)
        if ender.is_alive():
            _log.warning(
                "final-spans-lost: the last spans were not exported: the collector does not respond"
            )
            self._exporter.shutdown()


def start_export(options: TracingOptions, exporter: SpanExporter | None = None) -> SpanExport:
    """Start to export. Raises MissingPackages if the exporter's package is not installed."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    from kourou.telemetry.tracing import Tracing
    from kourou.telemetry.tracing_queue import BoundedQueue, CountingExporter
    from kourou.version import __version__

    counting = CountingExporter(exporter or _otlp_exporter(options.endpoint))
    queue = BoundedQueue(
        BatchSpanProcessor(counting, max_queue_size=2 * QUEUE_SPANS_MAX), counting, QUEUE_SPANS_MAX
    )
    about = {SERVICE_NAME: options.service_name, SERVICE_VERSION: __version__}
    if options.instance:
        about[SERVICE_INSTANCE] = options.instance
    # Sampling is decided before a span is created (kourou.telemetry.tracing).
    provider = TracerProvider(
        sampler=ALWAYS_ON, resource=Resource.create(about), shutdown_on_exit=False
    )
    provider.add_span_processor(queue)
    tracing = Tracing(
        provider.get_tracer(SCOPE, __version__),
        ratio=options.ratio,
        roots_per_s=options.roots_per_s,
    )
    return SpanExport(tracing, provider, queue, counting)


def _otlp_exporter(endpoint: str) -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise MissingPackages(
            "exporting traces requires the OpenTelemetry exporter package; to turn "
            "traces off, set OTEL_TRACES_EXPORTER=none",
            "otlp",
        ) from None
    return OTLPSpanExporter(endpoint=endpoint or None)


# -- sharing between the clients of one process ---------------------------------------------------


def application_tracing(ratio: float, roots_per_s: int = ROOTS_PER_S_MAX) -> Tracing | None:
    """Create tracing on the provider that the application has set up; None if it has none."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
        return None
    from kourou.telemetry.tracing import Tracing
    from kourou.version import __version__

    return Tracing(provider.get_tracer(SCOPE, __version__), ratio=ratio, roots_per_s=roots_per_s)


class SharedExports:
    """One exporter for all clients of a process with the same options."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[TracingOptions, tuple[SpanExport, int]] = {}

    def acquire(self, options: TracingOptions) -> SpanExport:
        """Return the exporter; the first call starts it."""
        with self._lock:
            found = self._open.get(options)
            export, users = (start_export(options), 0) if found is None else found
            self._open[options] = (export, users + 1)
            return export

    def forked(self) -> None:
        """Reset the lock in a forked child; exporters restart their threads by themselves."""
        self._lock = threading.Lock()

    def release(self, options: TracingOptions) -> None:
        """Release the exporter; the last user closes it and waits for the export."""
        with self._lock:
            export, users = self._open.pop(options)
            if users > 1:
                self._open[options] = (export, users - 1)
                return
        export.close()


SHARED = SharedExports()
"""The shared exports of this process."""

os.register_at_fork(after_in_child=SHARED.forked)
