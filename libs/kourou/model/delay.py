"""Delay levels: the few delays that a broker offers (RocketMQ `messageDelayLevel`).

Levels count from 1. A level above the highest is treated as the highest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from kourou.errors import ConfigError
from kourou.model.limits import DELAY_LEVELS_MAX

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's levels, and the default."""

RETRY_LEVEL = 3
"""The level of a failed message's second attempt; each further attempt is one level higher."""

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"[0-9]{1,6}[smhd]")


@lru_cache(maxsize=64)
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The delays in ms, level 1 first. Raises ConfigError that names an invalid level."""
    delays: list[int] = []
    for number, word in enumerate(text.split(), 1):
        if _DELAY.fullmatch(word) is None:
            raise ConfigError(
                f"messageDelayLevel: level {number} is {word!r}, and not a number of s, m, h or d",
                hint="for example 30s",
            )
        delays.append(int(word[:-1]) * _UNIT_MS[word[-1]])
    if not delays:
        raise ConfigError("messageDelayLevel has no level", hint=f"for example {DELAY_LEVELS}")
    if len(delays) > DELAY_LEVELS_MAX:
        raise ConfigError(
            f"messageDelayLevel has {len(delays)} levels; at most {DELAY_LEVELS_MAX} are allowed"
        )
    return tuple(delays)


DELAY_LEVELS_MS = parse_delay_levels(DELAY_LEVELS)


def delay_of(level: int, levels_ms: Sequence[int]) -> int:
    """The delay in ms of a level (from 1)."""
    return levels_ms[min(level, len(levels_ms)) - 1]
