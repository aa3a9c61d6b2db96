"""Messages that are to be delivered later: by level, or by a length of time that is a level.

RocketMQ 4.9's brokers offer a few delays and no others. A length of time between two of them is
refused: whoever asks for ten minutes and a half shall not find out later what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from kourou.errors import BadRequest
from kourou.model.message import Property

_LEVELS = {level: {Property.DELAY.value: str(level)} for level in range(1, 33)}


def delay_property(
    levels_ms: Sequence[int], delay_level: int, delay: timedelta | None = None
) -> Mapping[str, str] | None:
    """The property that makes a message wait; None if it does not have to.

    `delay` must be one of the levels, whose delays from level 1 on are `levels_ms`. Raises
    BadRequest for a delay that is none, for both at once, and for a level that is no whole number
    from 0 on.
    """
    if delay is not None:
        if delay_level:
            raise BadRequest("delay and delay_level are both set", hint="set one of them")
        delay_level = level_of(levels_ms, delay)
    if not isinstance(delay_level, int) or delay_level < 0:
        raise BadRequest(
            f"delay_level is {delay_level!r}; it must be at least 1", hint="levels count from 1"
        )
    if not delay_level:
        return None
    return _LEVELS.get(delay_level) or {Property.DELAY.value: str(delay_level)}


def level_of(levels_ms: Sequence[int], delay: timedelta) -> int:
    """The level with this delay, 0 for no time at all. Raises BadRequest that names the nearest."""
    if not isinstance(delay, timedelta):
        raise BadRequest(
            f"delay is {delay!r}, which is not a timedelta",
            hint="for example timedelta(seconds=10)",
        )
    wanted_ms = delay / timedelta(milliseconds=1)
    if not wanted_ms:
        return 0
    for level, level_ms in enumerate(levels_ms, 1):
        if level_ms == wanted_ms:
            return level
    nearest = sorted(enumerate(levels_ms, 1), key=lambda known: abs(known[1] - wanted_ms))[:2]
    named = " or ".join(f"{timedelta(milliseconds=ms)} (level {level})" for level, ms in nearest)
    raise BadRequest(
        f"{delay} is not a delay level of the brokers",
        hint=f"nearest: {named}; the producer setting delay_levels lists them all",
    )
