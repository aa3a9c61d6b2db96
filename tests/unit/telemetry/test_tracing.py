"""Who is traced, and what a span is below."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

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
from kourou.telemetry.tracing_context import is_sampled, traceparent_of
from kourou.telemetry.tracing_setup import ROOTS_PER_S_MAX

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


def test_where_the_applications_sampler_says_no_there_is_no_span(site: Site) -> None:
    provider = TracerProvider(sampler=trace_sampler_off(), shutdown_on_exit=False)
    tracing = Tracing(provider.get_tracer("t"), ratio=1.0)
    assert tracing.start("work", SpanKind.CLIENT, NEW, {}) is None


def trace_sampler_off():
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    return ALWAYS_OFF


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
