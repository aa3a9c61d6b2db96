"""How a client waits for a broker that nobody leads just now.

A broker name has one leader at a time. When that dies another one takes over (an election, an
operator who promotes a follower, a restart), and for that while there is none. All clients notice
in the same moment, so pauses grow and have chance in them.

    nobody_leads   the request was refused by somebody who does not lead, or it never left: nothing
                   was done, and asking again does no harm
    was_lost       the connection ended under it, or the leader lost its lead: it may have been done

State: none but a count.
"""

from __future__ import annotations

import random

from kourou.errors import Code, KourouError, TimedOut, Unavailable, UnknownOutcome

FIRST_MS = 20
LONGEST_MS = 500


class Pauses:
    """Pauses that double from `first_ms` to `longest_ms`, each between half and all of that."""

    __slots__ = ("_chance", "_longest_ms", "_span_ms")

    def __init__(
        self, chance: random.Random, *, first_ms: int = FIRST_MS, longest_ms: int = LONGEST_MS
    ) -> None:
        self._chance = chance
        self._span_ms = first_ms
        self._longest_ms = longest_ms

    def grow(self, times: int) -> None:
        """As if so many pauses had been made already."""
        self._span_ms = min(self._span_ms << min(times, 16), self._longest_ms)

    def next_ms(self) -> int:
        """The length of the next pause."""
        span_ms = self._span_ms
        self.grow(1)
        return int(span_ms * (0.5 + 0.5 * self._chance.random()))


def nobody_leads(error: KourouError) -> bool:
    """Was nothing done because nobody was there who may do it now?"""
    return isinstance(error, Unavailable) and error.wire_code == Code.SERVICE_NOT_AVAILABLE


def was_lost(error: KourouError) -> bool:
    """Is the outcome unknown although there is time left to ask again?"""
    return isinstance(error, UnknownOutcome) and not isinstance(error, TimedOut)
