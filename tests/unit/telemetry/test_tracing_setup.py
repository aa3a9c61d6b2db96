"""Whether there is tracing, and what becomes of spans at the end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from kourou import __version__
from kourou.errors import ConfigError
from kourou.telemetry import tracing_setup
from kourou.telemetry.otlp_receiver import OtlpReceiver
from kourou.telemetry.tracing import NEW, SpanKind
from kourou.telemetry.tracing_setup import (
    SharedExports,
    SpanCounts,
    TracingOptions,
    application_tracing,
    start_export,
    tracing_options,
)


@pytest.fixture
def collector() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


def options(environment=None, **settings) -> TracingOptions | None:
    return tracing_options(environment or {}, service_name="kourou-broker", **settings)


def exporter_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "OtelBatch" in thread.name]


def test_off_unless_an_endpoint_is_set() -> None:
    assert options() is None
    assert options({"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}) is None


def test_settings_say_where_to() -> None:
    assert options(endpoint="http://c:4318", ratio=0.5, instance="a") == TracingOptions(
        "http://c:4318/v1/traces", 0.5, "kourou-broker", "a"
    )
    found = options(endpoint="https://c/v1/traces/")
    assert found is not None
    assert found.endpoint == "https://c/v1/traces"
    with pytest.raises(ConfigError, match="not an OTLP endpoint"):
        options(endpoint="c:4318")


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x"}, "http://c/x"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "http://d:4318/v1/traces"),
    ],
)
def test_the_standard_variables_win(environment, endpoint) -> None:
    """What they say now: two clients for which they differ do not share an exporter."""
    found = options({**environment, "OTEL_SERVICE_NAME": "mine"}, endpoint="http://d:4318")
    assert found == TracingOptions(endpoint, 1.0, "mine")
    assert options({"OTEL_TRACES_EXPORTER": "otlp"}) == TracingOptions("", 1.0, "kourou-broker")


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "kourou-broker"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b, service.name=our%20shop,c"}, "our shop"),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs", "OTEL_SERVICE_NAME": "mine"},
            "mine",
        ),
    ],
)
def test_the_services_name(environment: dict[str, str], name: str) -> None:
    found = options(environment, endpoint="http://c:4318")
    assert found is not None
    assert found.service_name == name


def test_what_a_process_says_of_itself(collector: OtlpReceiver, monkeypatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=shop")
    export = start_export(TracingOptions(f"{collector.endpoint}/v1/traces", 1.0, "s", "broker-a"))
    attributes = export._provider.resource.attributes
    export.close()
    assert {name: attributes[name] for name in attributes if not name.startswith("telemetry.")} == {
        "deployment.environment.name": "shop",
        "service.name": "s",
        "service.version": __version__,
        "service.instance.id": "broker-a",
    }


def test_otlp_alone_means_the_usual_port_of_this_machine(monkeypatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    found = options({"OTEL_TRACES_EXPORTER": "otlp"})
    assert found is not None
    exporter = tracing_setup._otlp_exporter(found.endpoint)
    assert exporter._endpoint == "http://localhost:4318/v1/traces"
    exporter.shutdown()


@pytest.mark.parametrize(
    "environment", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}]
)
def test_the_environment_can_turn_it_off(environment) -> None:
    assert options(environment, endpoint="http://c:4318") is None


@pytest.mark.parametrize(
    ("sampler", "argument", "ratio"),
    [
        ("", "", 0.25),
        ("always_on", "", 1.0),
        ("parentbased_always_off", "", 0.0),
        ("parentbased_traceidratio", "0.01", 0.01),
        ("traceidratio", "", 1.0),
    ],
)
def test_the_standard_samplers(sampler: str, argument: str, ratio: float) -> None:
    found = options(
        {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument},
        endpoint="http://c:4318",
        ratio=0.25,
    )
    assert found is not None
    assert found.ratio == ratio


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "nonsense"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "jaeger_remote"},
        {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "one percent",
        },
        {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "2",
        },
    ],
)
def test_what_is_not_possible_is_said(environment) -> None:
    with pytest.raises(ConfigError):
        options(environment)


def test_without_the_exporters_package_the_error_names_the_install_group(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    before = exporter_threads()
    with pytest.raises(ConfigError, match=r"pip install 'kourou\[otlp\]'"):
        start_export(TracingOptions("http://127.0.0.1:1/v1/traces", 1.0, "s"))
    assert exporter_threads() == before


def test_the_end_waits_for_the_last_spans(collector: OtlpReceiver) -> None:
    export = start_export(TracingOptions(f"{collector.endpoint}/v1/traces", 1.0, "s", "broker-a"))
    assert exporter_threads()
    span = export.tracing.start("work", SpanKind.SERVER, NEW, {"a": True})
    assert span is not None
    span.end(error_type="Late")
    export.close()
    (seen,) = collector.spans
    assert (seen.service, seen.name, seen.kind, seen.failed, seen.attributes) == (
        "s",
        "work",
        "SERVER",
        True,
        {"a": True, "error.type": "Late"},
    )
    assert export.counts == SpanCounts(handed=1, exported=1)
    assert not exporter_threads()


def test_a_collector_that_refuses_costs_spans_and_nothing_else(collector: OtlpReceiver) -> None:
    collector.status = 400
    export = start_export(TracingOptions(f"{collector.endpoint}/v1/traces", 1.0, "s"))
    span = export.tracing.start("work", SpanKind.SERVER, NEW, {})
    assert span is not None
    span.end()
    export.close()
    assert export.counts == SpanCounts(handed=1, failed=1)


def test_the_end_does_not_wait_for_a_collector_that_is_away(collector: OtlpReceiver) -> None:
    collector.status = 503  # which the exporter tries again, with pauses
    export = start_export(TracingOptions(f"{collector.endpoint}/v1/traces", 1.0, "s"))
    span = export.tracing.start("work", SpanKind.SERVER, NEW, {})
    assert span is not None
    span.end()
    export.close(timeout_ms=1)
    for thread in exporter_threads():
        thread.join()  # the pause between two attempts was broken off
    assert collector.requests <= 2


def test_clients_of_one_process_share_an_exporter(collector: OtlpReceiver) -> None:
    shared = SharedExports()
    one = TracingOptions(f"{collector.endpoint}/v1/traces", 1.0, "s")
    first, second = shared.acquire(one), shared.acquire(one)
    assert first is second
    other = shared.acquire(TracingOptions(one.endpoint, 0.5, "s"))
    assert other is not first
    shared.release(one)
    assert len(exporter_threads()) == 2
    shared.release(one)
    shared.release(TracingOptions(one.endpoint, 0.5, "s"))
    assert not exporter_threads()
    assert shared.acquire(one) is not first
    shared.release(one)


def test_a_child_process_is_not_held_up_by_a_lock_of_its_parent(collector: OtlpReceiver) -> None:
    shared, one = SharedExports(), TracingOptions(f"{collector.endpoint}/v1/traces", 1.0, "s")
    lock = shared._lock
    with lock:
        shared.forked()
        shared.acquire(one)
    shared.release(one)


def test_the_applications_own_provider_is_used(monkeypatch) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    assert application_tracing(1.0) is None
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    found = application_tracing(1.0)
    assert found is not None
    assert found.start("work", SpanKind.CLIENT, NEW, {}) is not None
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", trace.NoOpTracerProvider())
    assert application_tracing(1.0) is None
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert application_tracing(1.0) is None
