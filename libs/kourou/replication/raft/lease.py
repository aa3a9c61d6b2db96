"""How long a leader may be sure that there is no other one.

Every chunk carries the number of a *round*, and its answer brings it back. The leader knows when it
began that round, so the follower heard it no earlier. A follower does not vote while it has heard a
leader within the least election timeout; so until then, less what clocks may drift (`lease_ms`), no
other member gets the votes of a majority that includes this follower.

A leader that asks another member to stand at once (StandNow) suspends its lease: voters who have
heard no later round than the one named there vote although the leader lives. If the other one does
not take over, a new round begins, and only answers to that one or later ones count again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

_NEVER = -(1 << 62)


class Lease:
    """The lease of one leader in one epoch."""

    __slots__ = ("_began", "_lease_ms", "_needed", "_oldest", "_round_ms", "round", "suspended")

    def __init__(self, now_ms: int, *, majority: int, lease_ms: int, round_ms: int) -> None:
        self._needed = majority - 1  # the leader has heard itself
        self._lease_ms = lease_ms
        self._round_ms = round_ms
        self._began: deque[int] = deque([now_ms])
        self._oldest = 1
        #: The number of the round that goes with what is sent now.
        self.round = 1
        #: True from StandNow on: nothing may be acknowledged.
        self.suspended = False

    def turn(self, now_ms: int) -> None:
        """Something is sent: begin a new round, unless the last one has only just begun."""
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
        """Another member is asked to stand."""
        self.suspended = True

    def resume(self, now_ms: int) -> None:
        """It did not take over: earlier rounds count for nothing."""
        self.suspended = False
        self._began.clear()
        self._oldest = self.round + 1
        self._begin(now_ms)

    def valid(self, now_ms: int, answered: Iterable[int]) -> bool:
        """Whether the rounds that the others have answered make this member the only leader."""
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
