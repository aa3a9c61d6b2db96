"""Is there tracing, and where do spans go?

The standard variables win over our settings, so that a platform can turn tracing on and off:

    OTEL_SDK_DISABLED=true                        off
    OTEL_TRACES_EXPORTER=none                     off; `otlp` is the only other value known here
    OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT          on, to there
    OTEL_EXPORTER_OTLP_[TRACES_]PROTOCOL          only http/protobuf
    OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG  the ratio of traces that begin here
    OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES   what the process says of itself
    OTEL_BSP_SCHEDULE_DELAY, OTEL_EXPORTER_OTLP_HEADERS, OTEL_PROPAGATORS, …
                                                  as OpenTelemetry's packages understand them

Without any of them, and without a setting, there is no tracing: OpenTelemetry is not even imported.

State: soft: the queue of spans, the exporter's counts, and how many clients share an exporter.
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
from kourou.telemetry.metrics import Family, Labels
from kourou.telemetry.span_names import SCOPE, SERVICE_INSTANCE, SERVICE_NAME, SERVICE_VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from kourou.telemetry.tracing import Tracing

QUEUE_SPANS_MAX = 4_096
"""Spans that wait for the exporter; more are dropped and counted."""

CLOSE_MS_MAX = 2_000
"""How long an end waits for the last spans to leave."""

ROOTS_PER_S_MAX = 10
"""A trace costs client and broker half a millisecond together: 10 of them half a percent of a core,
and their spans' export as much again."""

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
    """Where spans go (`endpoint`; "" is OpenTelemetry's default), and how many there are."""

    endpoint: str
    ratio: float
    service_name: str
    instance: str = ""
    roots_per_s: int = ROOTS_PER_S_MAX


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """Spans since the start: handed to the exporter, delivered, dropped by a full queue, failed."""

    handed: int = 0
    exported: int = 0
    dropped: int = 0
    failed: int = 0

    def families(self, base: Labels, *, too_many_open: int | None = None) -> Iterator[Family]:
        """What became of spans, as metrics; `too_many_open` were never begun, where that is so."""
        yield Family.counter("kourou_trace_spans_total", "", [(base, self.exported)])
        lost = {"queue_full": self.dropped, "export_failed": self.failed}
        if too_many_open is not None:
            lost["too_many_open"] = too_many_open
        yield Family.counter(
            "kourou_trace_spans_dropped_total",
            "",
            [({"reason": reason, **base}, count) for reason, count in lost.items()],
        )


# -- is there tracing? ----------------------------------------------------------------------------


def tracing_options(
    environment: Mapping[str, str],
    *,
    service_name: str,
    endpoint: str = "",
    ratio: float = 1.0,
    instance: str = "",
) -> TracingOptions | None:
    """What environment and settings say; None: no tracing. ConfigError for what nobody can do."""

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
    """The service's name among `key=value,key=value`, "" if it is not there; values are encoded."""
    pairs = (pair.partition("=") for pair in attributes.split(","))
    return next(
        (unquote(value.strip()) for key, _, value in pairs if key.strip() == SERVICE_NAME), ""
    )


def _traces_url(endpoint: str) -> str:
    """A base URL as the standard's variable has it, or the whole URL."""
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


# -- where spans go -------------------------------------------------------------------------------


class SpanExport:
    """A tracing with an exporter of its own. `close` ends it; spans on their way get a moment."""

    def __init__(self, tracing: Tracing, provider: Any, queue: Any, exporter: Any) -> None:
        self.tracing = tracing
        self._provider = provider
        self._queue = queue
        self._exporter = exporter

    @property
    def counts(self) -> SpanCounts:
        """What became of the spans so far."""
        queue, exporter = self._queue, self._exporter
        return SpanCounts(queue.handed, exporter.exported, queue.dropped, exporter.failed)

    def close(self, timeout_ms: int = CLOSE_MS_MAX) -> None:
        """Export what waits, for at most `timeout_ms`; call it in a thread that may block."""
        ender = threading.Thread(
            target=self._provider.shutdown, name="kourou-trace-end", daemon=True
        )
        ender.start()
        ender.join(timeout_ms / 1000)
        if ender.is_alive():
            _log.warning("the last spans were not exported: the collector does not respond")
            self._exporter.shutdown()


def start_export(options: TracingOptions, exporter: SpanExporter | None = None) -> SpanExport:
    """Begin to export; ConfigError when the exporter's package is not installed."""
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
    # Whom to trace is decided before a span is made (kourou.telemetry.tracing).
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


# -- what the clients of one process share --------------------------------------------------------


def application_tracing(ratio: float, roots_per_s: int = ROOTS_PER_S_MAX) -> Tracing | None:
    """Tracing by the provider that the application itself has set up; None if it has none."""
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
    """One exporter for all clients of a process that want the same."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[TracingOptions, tuple[SpanExport, int]] = {}

    def acquire(self, options: TracingOptions) -> SpanExport:
        """The exporter, started for the first who asks."""
        with self._lock:
            found = self._open.get(options)
            export, users = (start_export(options), 0) if found is None else found
            self._open[options] = (export, users + 1)
            return export

    def forked(self) -> None:
        """A child process begins: its lock is its own; exporters start their threads themselves."""
        self._lock = threading.Lock()

    def release(self, options: TracingOptions) -> None:
        """The last one to leave waits until the spans have left as well."""
        with self._lock:
            export, users = self._open.pop(options)
            if users > 1:
                self._open[options] = (export, users - 1)
                return
        export.close()


SHARED = SharedExports()
"""This process's."""

os.register_at_fork(after_in_child=SHARED.forked)
