"""What follows from the keys of traffic."""

from __future__ import annotations

from kourou.broker.config import BrokerSettings
from kourou.store.settings import DELAY_LEVELS_MS


def test_delay_levels() -> None:
    assert BrokerSettings().delay_levels_ms == DELAY_LEVELS_MS
    assert BrokerSettings(message_delay_level="2s 1m 1h 1d").delay_levels_ms == (
        2_000,
        60_000,
        3_600_000,
        86_400_000,
    )
