"""Delayed messages: a delay level, or a duration that equals a delay level.

RocketMQ 4.9's brokers support a fixed list of delays. A duration between two levels is refused,
because the message would otherwise be delivered earlier or later than requested.
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
    """Return the property that delays a message, or None without a delay.

    `delay` must equal one of `levels_ms`, the delays of the levels from 1 on. Raises BadRequest if
    it does not, if both arguments are set, or if the level is not a non-negative integer.
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
    """Return the level with this delay; 0 for a delay of zero.

    Raises BadRequest, which names the nearest levels, if there is none.
    """
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
