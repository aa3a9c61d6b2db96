"""The leader's lease: how long it can be certain that there is no other leader.

Every chunk has the number of a *round*, and its acknowledgement returns it. The leader knows when
it began that round, so the follower received it no earlier. A follower does not vote within the
minimum election timeout after hearing from a leader. So until then, minus the possible clock drift
(`lease_ms`), no other replica gets a majority that includes this follower.

A leader that asks another replica to stand at once (StandNow) suspends its lease: voters that have
received no later round than the one in that request vote although the leader is online. If the
target does not take over, a new round begins, and only acknowledgements of it or later ones count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

_NEVER = -(1 << 62)


class Lease:
    """The lease of one leader in one epoch."""

    __slots__ = ("_began", "_lease_ms", "_needed", "_oldest", "_round_ms", "round", "suspended")

    def __init__(self, now_ms: int, *, majority: int, lease_ms: int, round_ms: int) -> None:
        self._needed = majority - 1  # without the leader itself
        self._lease_ms = lease_ms
        self._round_ms = round_ms
        self._began: deque[int] = deque([now_ms])
        self._oldest = 1
        #: The number of the current round.
        self.round = 1
        #: True from StandNow on: nothing may be acknowledged.
        self.suspended = False

    def turn(self, now_ms: int) -> None:
        """Begin a new round before sending, unless the last one has only just begun."""
        if self.suspended or now_ms - self._began[-1] < self._round_ms:
            return
        self._begin(now_ms)
        while self._began[0] < now_ms - self._lease_ms and len(self._began) > 1:
            self._began.popleft()
            self._oldest += 1

    def _begin(self, now_ms: int) -> None:
        self._began.append(now_ms)
        self.round += 1

    def suspend(self) -> None:
        """Another replica is asked to stand."""
        self.suspended = True

    def resume(self, now_ms: int) -> None:
        """The target did not take over: earlier rounds no longer count."""
        self.suspended = False
        self._began.clear()
        self._oldest = self.round + 1
        self._begin(now_ms)

    def valid(self, now_ms: int, answered: Iterable[int]) -> bool:
        """True if the acknowledged rounds prove that this replica is the only leader."""
        if self.suspended:
            return False
        if not self._needed:
            return True
        times = sorted((self._time_of(each) for each in answered), reverse=True)
        if len(times) < self._needed:
            return False
        return now_ms < times[self._needed - 1] + self._lease_ms

    def _time_of(self, answered: int) -> int:
        index = answered - self._oldest
        return self._began[index] if 0 <= index < len(self._began) else _NEVER
