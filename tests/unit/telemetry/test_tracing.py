"""Who is traced, and what a span is below."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from kourou import __version__
from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.broker.telemetry.spans import BrokerSpans
from kourou.cli import up
from kourou.cli.main import EXIT_BAD_USAGE, main
from kourou.cli.up import LOCAL_COLLECTOR
from kourou.client.settings.client_settings import ClientSettings
from kourou.client.tracing import spans as client_tracing
from kourou.errors import ConfigError
from kourou.model.limits import SEND_CONTEXTS_MAX
from kourou.settings.declaration import settings_of
from kourou.telemetry import span_names, tracing_setup
from kourou.telemetry.otlp_receiver import OtlpReceiver
from kourou.telemetry.span_names import ERROR_TYPE
from kourou.telemetry.tracing import (
    LINKS_MAX,
    NEW,
    SpanKind,
    TracedSpan,
    Tracing,
    continued,
    current_context,
    pack,
)
from kourou.telemetry.tracing_context import (
    CONTEXT_BYTES,
    context_of,
    contexts_among,
    is_sampled,
    traceparent_of,
)
from kourou.telemetry.tracing_setup import (
    CLOSE_MS_MAX,
    QUEUE_SPANS_MAX,
    ROOTS_PER_S_MAX,
    SharedExports,
    SpanCounts,
    TracingOptions,
    application_tracing,
    start_export,
    tracing_options,
)
from kourou.testing.cluster import Cluster
from kourou_demo import tour
from kourou_demo.tour import TRACED_SHARE

REMOTE = bytes(range(1, 25)) + b"\x01"
UNSAMPLED = REMOTE[:24] + b"\x00"


class Site:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.now_ns = 5_000_000_000
        self.draws: list[float] = []

    def tracing(self, ratio: float) -> Tracing:
        return Tracing(
            self.provider.get_tracer("t"),
            ratio=ratio,
            chance=lambda: self.draws.pop(0),
            now_ns=lambda: self.now_ns,
        )

    def start(self, parent: bytes = NEW, **more) -> TracedSpan:
        span = self.tracing(1.0).start("work", SpanKind.CLIENT, parent, {"a": 1}, **more)
        assert span is not None
        return span

    @property
    def spans(self):
        return self.exporter.get_finished_spans()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.provider.shutdown()


def test_without_a_parent_chance_decides(site: Site) -> None:
    tracing = site.tracing(0.01)
    site.draws = [0.5, 0.009]
    assert tracing.decide() is None
    assert tracing.decide() == NEW


def test_all_means_all_and_none_means_none(site: Site) -> None:
    assert [site.tracing(1.0).decide() for _ in range(2 * ROOTS_PER_S_MAX)] == [NEW] * (
        2 * ROOTS_PER_S_MAX
    )
    site.draws = [0.0]
    assert site.tracing(0.0).decide() is None


def test_only_so_many_traces_begin_in_a_second(site: Site) -> None:
    tracing = site.tracing(0.5)
    site.draws = [0.0] * (ROOTS_PER_S_MAX + 3)
    assert [tracing.decide() for _ in range(ROOTS_PER_S_MAX)] == [NEW] * ROOTS_PER_S_MAX
    assert (tracing.decide(), tracing.decide()) == (None, None)
    site.now_ns += 1_000_000_000
    assert tracing.decide() == NEW


def test_the_bound_is_a_setting_and_none_is_one(site: Site) -> None:
    tracer = site.provider.get_tracer("t")
    few = Tracing(tracer, ratio=0.5, roots_per_s=2, chance=lambda: 0.0, now_ns=lambda: 0)
    assert [few.decide() for _ in range(4)] == [NEW, NEW, None, None]
    many = Tracing(tracer, ratio=0.5, roots_per_s=0, chance=lambda: 0.0, now_ns=lambda: 0)
    assert [many.decide() for _ in range(3 * ROOTS_PER_S_MAX)] == [NEW] * 3 * ROOTS_PER_S_MAX


@pytest.mark.parametrize("above", [REMOTE, UNSAMPLED])
def test_the_caller_decides_if_it_has_a_span(site: Site, above: bytes) -> None:
    with current_context(above):
        assert site.tracing(1.0).decide() == above
    assert site.tracing(1.0).decide() == NEW


def test_a_span_below_a_remote_one_with_links(site: Site) -> None:
    span = site.start(REMOTE, links=[REMOTE] * (LINKS_MAX + 5), start_ns=1_000)
    span.link([UNSAMPLED])
    span.set({"b": "c"})
    span.end(end_ns=2_000)
    (done,) = site.spans
    assert (done.name, done.kind, dict(done.attributes)) == (
        "work",
        SpanKind.CLIENT,
        {"a": 1, "b": "c"},
    )
    assert (done.parent.span_id, done.parent.is_remote) == (
        int.from_bytes(REMOTE[16:24], "big"),
        True,
    )
    assert pack(done.context)[:16] == REMOTE[:16]
    assert (done.start_time, done.end_time, len(done.links)) == (1_000, 2_000, LINKS_MAX)


def test_a_new_trace_is_below_nothing_even_if_something_is_current(site: Site) -> None:
    with current_context(REMOTE):
        site.start(NEW).end()
    assert site.spans[0].parent is None


def test_a_failure(site: Site) -> None:
    site.start().end(error_type="Late", error="too late", exception=ValueError("x"))
    (done,) = site.spans
    assert (done.attributes[ERROR_TYPE], done.status.description) == ("Late", "too late")
    assert not done.status.is_ok
    assert [event.name for event in done.events] == ["exception"]


def test_a_part_that_is_over(site: Site) -> None:
    span = site.start()
    site.tracing(1.0).finished("append", span.context, 10, 20, {"n": 3})
    (part,) = site.spans
    assert (part.name, part.start_time, part.end_time, dict(part.attributes)) == (
        "append",
        10,
        20,
        {"n": 3},
    )
    assert pack(part.parent) == span.context


def test_where_the_applications_sampler_says_no_there_is_no_span() -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    tracing = Tracing(provider.get_tracer("t"), ratio=1.0)
    assert tracing.start("work", SpanKind.CLIENT, NEW, {}) is None


def test_a_message_takes_context_and_baggage_along_and_gives_them_back(site: Site) -> None:
    token = context.attach(baggage.set_baggage("tenant", "blue"))
    span = site.start()
    properties = span.properties()
    context.detach(token)
    assert properties == {"traceparent": traceparent_of(span.context), "baggage": "tenant=blue"}
    with continued(properties):
        assert site.tracing(0.0).decide() == span.context
        assert baggage.get_baggage("tenant") == "blue"
    assert baggage.get_baggage("tenant") is None


def test_trace_context_alone_is_understood_and_nonsense_is_nothing(site: Site) -> None:
    with continued({"TRACE_CONTEXT": traceparent_of(REMOTE)}):
        assert site.tracing(0.0).decide() == REMOTE
    site.draws = [0.9, 0.9]
    for nonsense in ({"traceparent": "no"}, {}):
        with current_context(REMOTE), continued(nonsense):
            assert site.tracing(0.5).decide() is None


def test_the_applications_spans_are_below_ours_meanwhile(site: Site) -> None:
    span = site.start()
    with span.current():
        assert is_sampled(span.context)
        assert pack(trace.get_current_span().get_span_context()) == span.context
    assert not trace.get_current_span().get_span_context().is_valid


# -- A trace context as bytes and as text ----------------------------------------------------------


TEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BYTES = bytes.fromhex("0af7651916cd43dd8448eb211c80319cb7ad6b716920333101")


def test_both_forms_mean_the_same() -> None:
    assert context_of(TEXT) == BYTES
    assert traceparent_of(BYTES) == TEXT


def test_only_the_last_bit_says_sampled() -> None:
    assert is_sampled(BYTES)
    assert is_sampled(BYTES[:24] + b"\x03")
    assert not is_sampled(BYTES[:24] + b"\x02")
    assert not is_sampled(bytes(25))
    assert not is_sampled(b"")


def test_sampled_contexts_are_found_in_the_bytes_of_records() -> None:
    def record(text: str) -> bytes:
        return b"\x00body\x00TAGS\x01t\x02traceparent\x01" + text.encode() + b"\x02UNIQ_KEY\x01k"

    other = TEXT.replace("b7ad", "c8be")
    unsampled = TEXT[:-1] + "0"
    run = record(TEXT) + record(unsampled) + record(other) + record(TEXT)
    found = [BYTES, context_of(other)]
    assert contexts_among(run, 8) == found
    assert contexts_among(memoryview(run), 1) == found[:1]
    assert contexts_among(record("00-" + "0" * 32 + TEXT[35:]), 8) == [], "no trace has this id"
    assert contexts_among(b"", 8) == []


def test_a_later_version_may_say_more() -> None:
    assert context_of("01" + TEXT[2:] + "-more") == BYTES


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT[:-1],
        TEXT.upper(),
        TEXT + "-more",
        "ff" + TEXT[2:],
        "00-" + "0" * 32 + TEXT[35:],
        TEXT[:36] + "0" * 16 + "-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz",
    ],
)
def test_what_is_no_traceparent(text: str) -> None:
    assert context_of(text) is None


# -- page ------------------------------------------------------------------------------------------


PAGE = (Path(__file__).parents[3] / "docs/tracing.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())


@pytest.mark.parametrize(
    "claim",
    [
        f"at most {ROOTS_PER_S_MAX} traces a second begin",
        f"linked to the others (at most {LINKS_MAX})",
        f"the {CONTEXT_BYTES} bytes of its prefix",
        f"from a queue of {QUEUE_SPANS_MAX:,};",
        f"waits at most { ({2_000: 'two'}[CLOSE_MS_MAX]) } seconds for its last spans",
        f"traces one message in { ({0.01: 'a hundred'}[TRACED_SHARE]) }",
        f"or else `{LOCAL_COLLECTOR}`",
        f"else `{client_tracing.SERVICE}`, `kourou-{BrokerService.name}`",
        f"`messaging.system={span_names.SYSTEM_VALUE}`",
    ],
)
def test_a_number_or_name_is_the_codes(claim: str) -> None:
    assert claim in PROSE


def test_one_frame_has_room_for_all_links_of_a_span() -> None:
    assert SEND_CONTEXTS_MAX + 1 == LINKS_MAX


def test_the_tree_has_every_operation() -> None:
    """And only those; what has no kind is a part of the broker's work."""
    (tree,) = (
        block for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) if "PRODUCER" in block
    )
    documented = dict(re.findall(r"^[│├└─ ]*([a-z]+)(?: orders)? {2,}(\w+)", tree, re.MULTILINE))
    kinds = {kind.name for kind in SpanKind}
    operations = {
        span_names.SEND: "PRODUCER",
        span_names.RECEIVE: "CLIENT",
        span_names.PROCESS: "CONSUMER",
        span_names.STORE: "SERVER",
        span_names.PULL: "SERVER",
    }
    parts = {
        span_names.APPEND,
        span_names.FLUSH,
        span_names.DISPATCH,
        span_names.WAIT,
        span_names.HOLD,
        span_names.SHIP,
        span_names.COPY,
        span_names.CONFIRM,
        span_names.REPLICATE,
        span_names.JUDGE,
    }
    assert {name: kind for name, kind in documented.items() if kind in kinds} == operations
    assert {name for name, kind in documented.items() if kind not in kinds} == parts


def test_what_is_not_of_the_conventions_begins_with_kourou() -> None:
    ours = {
        value
        for name, value in vars(span_names).items()
        if name.isupper() and isinstance(value, str) and "." in value
    }
    conventions = ("messaging.", "server.", "error.", "service.", "http.")
    assert {name for name in ours if not name.startswith((*conventions, "kourou."))} == set()


def test_the_variables_are_those_that_are_looked_at() -> None:
    source = Path(tracing_setup.__file__).read_text(encoding="utf-8")
    code = source.partition('"""\n\nfrom')[2]
    looked_at = set(re.findall(r'"(OTEL_[A-Z_]+)"', code))
    documented = set(re.findall(r"OTEL_[A-Z_]+", PAGE))
    assert looked_at - documented == {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"}
    # The others are OpenTelemetry's own affair.
    assert documented - looked_at == {
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_BSP_SCHEDULE_DELAY",
        "OTEL_PROPAGATORS",
    }


def test_the_settings_are_there() -> None:
    documented = set(re.findall(r"`((?:trace_|trace[A-Z]|tracing)\w*)`", PAGE))
    keys = {one.key for one in settings_of(BrokerSettings)} | {
        field.name for field in fields(ClientSettings)
    }
    wanted = {key for key in keys if key.startswith(("traceOtlp", "trace_", "tracing"))}
    assert documented - {"trace_id"} == wanted  # which is a field of log lines


def test_the_reasons_of_lost_spans() -> None:
    export: Any = SimpleNamespace(counts=SpanCounts(), tracing=SimpleNamespace(now_ns=lambda: 0))
    families = {family.name: family for family in BrokerSpans(export).families({})}
    assert all(f"`{name}`" in PAGE for name in families)
    samples = families["kourou_trace_spans_dropped_total"].samples
    (documented,) = re.findall(r"by `reason`: ([^.]+)\.", PROSE)
    assert [labels["reason"] for labels, _ in samples] == re.findall(r"`(\w+)`", documented)


@pytest.mark.parametrize(
    ("command", "part", "ratio"),
    [("up", (up, "check_group"), None), ("demo", (tour, "open_view"), str(TRACED_SHARE))],
)
def test_the_option_of_the_commands_turns_it_on_for_their_processes(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    part: tuple[object, str],
    ratio: str | None,
) -> None:
    """The commands end here before they start anything; children get the environment."""
    seen: list[Mapping[str, str]] = []

    def end(*_: object, **__: object) -> NoReturn:
        seen.append(dict(os.environ))
        raise ConfigError("enough")

    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    monkeypatch.setattr(*part, end)
    for arguments in ([command], [command, "--trace"]):
        monkeypatch.setattr(os, "environ", dict(clean))
        assert main(arguments) == EXIT_BAD_USAGE
    without, traced = seen
    assert not [name for name in without if name.startswith("OTEL_")]
    assert traced["OTEL_EXPORTER_OTLP_ENDPOINT"] == LOCAL_COLLECTOR
    assert traced.get("OTEL_TRACES_SAMPLER_ARG") == ratio


async def test_the_example_runs(kourou_broker: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    source = (
        "from kourou import Client, ClientSettings\n"
        "from kourou.telemetry.otlp_receiver import OtlpReceiver\n\n"
        "async def example(address):\n" + textwrap.indent(example, "    ") + "    return span\n"
    )
    space: dict[str, Any] = {}
    exec(compile(source, "docs/tracing.md", "exec"), space)
    span = await space["example"](kourou_broker.address)
    assert (span.name, span.kind, span.service) == ("send orders", "PRODUCER", "kourou-client")


# -- whether there is tracing, and what becomes of spans at the end --------------------------------


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


def export_with_one_span(collector: OtlpReceiver) -> Any:
    export = start_export(TracingOptions(f"{collector.endpoint}/v1/traces", 1.0, "s"))
    span = export.tracing.start("work", SpanKind.SERVER, NEW, {"a": True})
    assert span is not None
    span.end(error_type="Late")
    return export


def test_the_end_waits_for_the_last_spans(collector: OtlpReceiver) -> None:
    export = export_with_one_span(collector)
    assert exporter_threads()
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
    export = export_with_one_span(collector)
    export.close()
    assert export.counts == SpanCounts(handed=1, failed=1)


def test_the_end_does_not_wait_for_a_collector_that_is_away(collector: OtlpReceiver) -> None:
    collector.status = 503  # which the exporter tries again, with pauses
    export = export_with_one_span(collector)
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
