"""The flights that the demo follows, and what is told of their trace."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.telemetry.tracing_context import context_of, is_sampled
from kourou_demo import followed as module
from kourou_demo.followed import FLIGHTS_FOLLOWED, Collected, Followed, Traced, collected

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def a_flight(row: int, late: int | None) -> Any:
    return SimpleNamespace(row=row, arrival_delay=late)


def test_the_latest_flights_of_the_day_take_a_context_along() -> None:
    followed = Collected(traced=True).followed
    followed.choose([a_flight(row, row if row % 2 else None) for row in range(100)])
    assert followed.rows == set(range(99, 99 - 2 * FLIGHTS_FOLLOWED, -2))
    found = followed.properties(99, {"arrival_delay": "99"})
    assert found == {"arrival_delay": "99", "traceparent": followed.traceparent}
    assert followed.properties(1, {"a": "b"}) == {"a": "b"}
    context = context_of(followed.traceparent)
    assert context is not None
    assert is_sampled(context)


def test_where_nothing_is_traced_nothing_goes_along() -> None:
    followed = Followed()
    followed.choose([a_flight(1, 5)])
    assert followed.properties(1) == {}
    assert Collected(traced=False).traced().as_json() == {"trace_id": None, "trace_services": None}


def test_without_a_collector_the_demo_has_one_of_its_own() -> None:
    environment = {"OTEL_TRACES_SAMPLER": "always_on"}
    with collected("", environment) as found:
        assert environment[ENDPOINT].startswith("http://127.0.0.1:")
        assert environment["OTEL_TRACES_SAMPLER"] == "parentbased_always_off"
        trace_id = found.followed.traceparent[3:35]
        spans: list[Any] = [
            SimpleNamespace(trace_id=trace_id, service="b", name="store flights"),
            SimpleNamespace(trace_id=trace_id, service="a", name="send flights"),
            SimpleNamespace(trace_id=trace_id, service="a", name="process flights"),
            SimpleNamespace(trace_id="other", service="c", name="send flights"),
        ]
        found.collect_into(spans)
    assert environment == {"OTEL_TRACES_SAMPLER": "always_on"}
    services = {"a": ["process flights", "send flights"], "b": ["store flights"]}
    assert found.traced() == Traced(trace_id, services, 3)


def test_with_a_collector_only_the_id_is_known() -> None:
    environment = {ENDPOINT: "http://there:4318"}
    with collected("http://there:4318", environment) as found:
        assert environment == {ENDPOINT: "http://there:4318"}
    view = found.traced().as_json()
    assert view["trace_id"] == found.followed.traceparent[3:35]
    assert view["trace_services"] is None


@pytest.mark.parametrize("off", [("OTEL_TRACES_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "True")])
def test_who_turned_tracing_off_gets_none(off: tuple[str, str]) -> None:
    environment = dict([off])
    with collected("", environment) as found:
        assert environment == dict([off])
        assert found.followed.traceparent == ""


def test_without_the_exporters_package_nothing_is_traced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "EXPORTER", "opentelemetry_there_is_none.exporter")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    environment: dict[str, str] = {}
    with collected("", environment) as found:
        assert environment == {}
        assert found.traced().trace_id == ""
