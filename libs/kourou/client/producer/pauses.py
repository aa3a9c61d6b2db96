"""Pauses between attempts while a broker has no leader.

A broker name has one leader at a time. When it dies another one takes over (an election, an
operator who promotes a follower, a restart), and until then there is none. All clients notice this
at the same time, so pauses grow and are randomized.

    nobody_leads   the request was refused by a replica that is not the leader, or was not sent:
                   nothing was changed, so a retry is harmless
    was_lost       the connection was lost during the request, or the leader lost its leadership:
                   the request may have been executed

State: none but a count.
"""

from __future__ import annotations

import random

from kourou.errors import Code, KourouError, TimedOut, Unavailable, UnknownOutcome

FIRST_MS = 20
LONGEST_MS = 500


class Pauses:
    """Pauses that double from `first_ms` to `longest_ms`, each randomized between half and all."""

    __slots__ = ("_chance", "_longest_ms", "_span_ms")

    def __init__(
        self, chance: random.Random, *, first_ms: int = FIRST_MS, longest_ms: int = LONGEST_MS
    ) -> None:
        self._chance = chance
        self._span_ms = first_ms
        self._longest_ms = longest_ms

    def grow(self, times: int) -> None:
        """Continue as if this many pauses had been made."""
        self._span_ms = min(self._span_ms << min(times, 16), self._longest_ms)

    def next_ms(self) -> int:
        """Return the length of the next pause in ms."""
        span_ms = self._span_ms
        self.grow(1)
        return int(span_ms * (0.5 + 0.5 * self._chance.random()))


def nobody_leads(error: KourouError) -> bool:
    """Return whether nothing was changed, because no leader was available."""
    return isinstance(error, Unavailable) and error.wire_code == Code.SERVICE_NOT_AVAILABLE


def was_lost(error: KourouError) -> bool:
    """Return whether the outcome is unknown, but there is time left for a retry."""
    return isinstance(error, UnknownOutcome) and not isinstance(error, TimedOut)
