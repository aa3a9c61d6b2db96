"""What a delay of a send means."""

from datetime import timedelta

import pytest

from kourou.client.producer.drafts import delay_property, level_of
from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import BadRequest, ConfigError
from kourou.model.message import DELAY_LEVELS_MS


@pytest.mark.feature("F247", "F248")
def test_a_level_or_its_time() -> None:
    assert delay_property(DELAY_LEVELS_MS, 0) is None
    assert delay_property(DELAY_LEVELS_MS, 0, timedelta()) is None
    for level, ms in enumerate(DELAY_LEVELS_MS, 1):
        expected = {"DELAY": str(level)}
        assert delay_property(DELAY_LEVELS_MS, level) == expected
        assert delay_property(DELAY_LEVELS_MS, 0, timedelta(milliseconds=ms)) == expected
    assert delay_property(DELAY_LEVELS_MS, 99) == {"DELAY": "99"}  # as the highest, brokers say


@pytest.mark.parametrize("level", [-1, 1.5, "3", None])
def test_what_is_no_level_is_refused(level) -> None:
    with pytest.raises(BadRequest, match="; it must be at least 1"):
        delay_property(DELAY_LEVELS_MS, level)


def test_a_time_between_two_levels_is_refused_with_both_named() -> None:
    with pytest.raises(
        BadRequest, match=r"0:15:00 is not a delay level of the brokers .*0:10:00 \(level 14\)"
    ):
        level_of(DELAY_LEVELS_MS, timedelta(minutes=15))
    for wrong in (timedelta(seconds=-1), timedelta(milliseconds=1), timedelta(days=1)):
        with pytest.raises(BadRequest):
            level_of(DELAY_LEVELS_MS, wrong)


@pytest.mark.parametrize("delay", [5, 1.5, "1h"])
def test_what_is_no_length_of_time_is_refused(delay) -> None:
    with pytest.raises(BadRequest, match=r"for example timedelta\(seconds=10\)"):
        delay_property(DELAY_LEVELS_MS, 0, delay)


def test_both_at_once_are_refused() -> None:
    with pytest.raises(BadRequest, match="both"):
        delay_property(DELAY_LEVELS_MS, 1, timedelta(seconds=1))


def test_a_producer_uses_the_configured_levels() -> None:
    settings = ProducerSettings(delay_levels="2s 1d")
    assert settings.delay_levels_ms == (2_000, 86_400_000)
    with pytest.raises(ConfigError, match="level 2"):
        ProducerSettings(delay_levels="1s soon")
