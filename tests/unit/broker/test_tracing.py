"""A broker without tracing has plain hands and no exporter."""

from __future__ import annotations

import pytest

from kourou.broker.config import BrokerSettings
from kourou.broker.effect_executor import EffectExecutor
from kourou.broker.tracing import broker_spans, executor_of
from kourou.errors import ConfigError
from kourou_rigs.otlp import OtlpReceiver


def test_plain_hands_without_tracing() -> None:
    assert broker_spans(BrokerSettings(), {}) is None
    assert executor_of(None) is EffectExecutor


def test_the_key_turns_it_on_and_the_standard_variable_off() -> None:
    with OtlpReceiver() as collector:
        settings = BrokerSettings(trace_otlp_endpoint=collector.endpoint)
        spans = broker_spans(settings, {})
        assert spans is not None
        assert executor_of(spans) is not EffectExecutor
        spans.close()
        assert broker_spans(settings, {"OTEL_TRACES_EXPORTER": "none"}) is None


def test_an_endpoint_that_is_none() -> None:
    with pytest.raises(ConfigError, match="OTLP endpoint"):
        broker_spans(BrokerSettings(trace_otlp_endpoint="collector"), {})
