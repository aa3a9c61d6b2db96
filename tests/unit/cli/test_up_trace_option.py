"""What `--trace` puts into the environment."""

from __future__ import annotations

import pytest

from kourou.cli.up import LOCAL_COLLECTOR, trace_from_here


def test_nothing_asked_nothing_done() -> None:
    environment: dict[str, str] = {}
    assert trace_from_here(environment, asked=False, ratio=0.01) == ""
    assert environment == {}


def test_asked_for_without_an_endpoint_means_the_local_collector() -> None:
    environment: dict[str, str] = {}
    assert trace_from_here(environment, asked=True) == LOCAL_COLLECTOR
    assert environment == {"OTEL_EXPORTER_OTLP_ENDPOINT": LOCAL_COLLECTOR}


def test_an_endpoint_is_enough_and_the_ratio_is_only_a_default() -> None:
    environment = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}
    assert trace_from_here(environment, asked=False, ratio=0.01) == "http://c:4318/v1/traces"
    assert environment["OTEL_TRACES_SAMPLER_ARG"] == "0.01"
    mine = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_SAMPLER": "always_on"}
    before = dict(mine)
    assert trace_from_here(mine, asked=True, ratio=0.01) == "http://c"
    assert mine == before


@pytest.mark.parametrize("off", [{"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}])
def test_what_is_turned_off_stays_off(off) -> None:
    assert trace_from_here({**off}, asked=True) == ""
