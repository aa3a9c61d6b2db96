"""The broker's policy: values derived from its settings, and changes of the one in effect."""

from __future__ import annotations

import pytest

from kourou.engine.policy import BrokerPolicy, EffectivePolicy, parse_hours
from kourou.errors import ConfigError
from kourou.model.message import DELAY_LEVELS_MS


@pytest.mark.feature("F122", "F340")
@pytest.mark.parametrize(
    ("text", "hours"),
    [("04", (4,)), ("4", (4,)), ("04;16", (4, 16)), (" 0 ; 23 ", (0, 23)), ("1;1;02", (1, 1, 2))],
)
def test_hours(text: str, hours: tuple[int, ...]) -> None:
    assert parse_hours(text) == hours


@pytest.mark.parametrize("text", ["", "24", "-1", "4;", ";4", "4,5", "four", "٤", "004", "4 5"])
def test_other_hours_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="deleteWhen"):
        parse_hours(text)


def test_delay_levels() -> None:
    assert BrokerPolicy().delay_levels_ms == DELAY_LEVELS_MS
    assert BrokerPolicy(message_delay_level="2s 1m 1h 1d").delay_levels_ms == (
        2_000,
        60_000,
        3_600_000,
        86_400_000,
    )


def test_a_change_is_seen_by_all_who_share_the_policy() -> None:
    configured = BrokerPolicy("c", "b", permission=4)
    policy = shared = EffectivePolicy.of(configured)
    policy.change(permission=6, delete_when="3;15")
    assert (shared.permission, shared.delete_hours) == (6, (3, 15))
    assert (configured.permission, configured.delete_hours) == (4, (4,))
    assert (policy.cluster_name, policy.broker_name) == ("c", "b")
