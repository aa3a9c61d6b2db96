"""The list of delay levels."""

import pytest

from kourou.errors import ConfigError
from kourou.model.message import DELAY_LEVELS, DELAY_LEVELS_MS, delay_of, parse_delay_levels


@pytest.mark.feature("F247", "F353")
def test_rocketmq_s_levels() -> None:
    seconds = [1, 5, 10, 30, *(60 * n for n in (*range(1, 11), 20, 30)), 3600, 7200]
    assert parse_delay_levels(DELAY_LEVELS) == tuple(1_000 * one for one in seconds)
    assert len(DELAY_LEVELS_MS) == 18


@pytest.mark.feature("F216")
def test_the_gaps_of_16_retries_are_the_levels_from_3_on() -> None:
    gaps = "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    assert DELAY_LEVELS_MS[2:] == parse_delay_levels(gaps)
    assert sum(DELAY_LEVELS_MS[2:]) == 1_000 * (4 * 3600 + 45 * 60 + 40)


def test_a_level_above_the_highest_is_the_highest() -> None:
    assert [delay_of(level, (1, 7)) for level in (1, 2, 3, 99)] == [1, 7, 7, 7]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1s 5x 3m", "level 2 is '5x'"),
        ("s", "level 1"),
        ("1s -5s", "level 2"),
        ("1.5s", "level 1"),
        ("1234567s", "level 1"),
        ("", "no level"),
        ("1s " * 1_001, "at most 1000"),
    ],
)
def test_what_cannot_be_read_is_named(text, problem) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_delay_levels(text)
