"""A broker without tracing has the plain effect executor and no exporter."""

from __future__ import annotations

import pytest

from kourou.broker.broker_service import broker_spans
from kourou.broker.config import BrokerSettings
from kourou.broker.storage.effect_executor import EffectExecutor
from kourou.broker.storage.store_runtime import executor_of
from kourou.errors import ConfigError
from kourou.telemetry.otlp_receiver import OtlpReceiver

SERVICE = "kourou-broker"


def test_the_plain_executor_without_tracing() -> None:
    assert broker_spans(BrokerSettings(), {}, SERVICE) is None
    assert executor_of(None) is EffectExecutor


def test_the_key_turns_it_on_and_the_standard_variable_off() -> None:
    with OtlpReceiver() as collector:
        settings = BrokerSettings(trace_otlp_endpoint=collector.endpoint)
        spans = broker_spans(settings, {}, SERVICE)
        assert spans is not None
        assert executor_of(spans) is not EffectExecutor
        spans.close()
        assert broker_spans(settings, {"OTEL_TRACES_EXPORTER": "none"}, SERVICE) is None


def test_an_endpoint_that_is_none() -> None:
    with pytest.raises(ConfigError, match="OTLP endpoint"):
        broker_spans(BrokerSettings(trace_otlp_endpoint="collector"), {}, SERVICE)
