"""A broker without tracing has plain hands and no exporter."""

from __future__ import annotations

import pytest

from kourou.errors import ConfigError
from kourou.serving.config import BrokerSettings
from kourou.serving.hands import Hands
from kourou.serving.tracing import broker_spans, hands_of
from kourou_rigs.otlp import OtlpReceiver


def test_plain_hands_without_tracing() -> None:
    assert broker_spans(BrokerSettings(), {}) is None
    assert hands_of(None) is Hands


def test_the_key_turns_it_on_and_the_standard_variable_off() -> None:
    with OtlpReceiver() as collector:
        settings = BrokerSettings(trace_otlp_endpoint=collector.endpoint)
        spans = broker_spans(settings, {})
        assert spans is not None
        assert hands_of(spans) is not Hands
        spans.close()
        assert broker_spans(settings, {"OTEL_TRACES_EXPORTER": "none"}) is None


def test_an_endpoint_that_is_none() -> None:
    with pytest.raises(ConfigError, match="OTLP endpoint"):
        broker_spans(BrokerSettings(trace_otlp_endpoint="collector"), {})
