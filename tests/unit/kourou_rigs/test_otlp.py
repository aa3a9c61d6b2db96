"""The kit's collector is the one that the demo has; what it does is tested there."""

from __future__ import annotations

from kourou.telemetry import otlp_receiver
from kourou_rigs.otlp import OtlpReceiver, SeenSpan


def test_it_is_the_same() -> None:
    assert OtlpReceiver is otlp_receiver.OtlpReceiver
    assert SeenSpan is otlp_receiver.SeenSpan
