"""Computes when a delayed message is due, on a machine whose clock may be set.

State: projection. The steps are in the records of kourou.engine.delays.progress.

A message is due when its delay has passed since it was stored, and its store time is wall time.
After the clock is set forward, a message would be due too early by wall time. So every step is
recorded with the log position where it happened: records before it have store times of the former
clock. After a step backwards such messages are due by wall time, later than necessary, because a
message must not be early by either clock. A step back that is reverted costs nothing.

Drift is not a step: between two readings, a clock that is being adjusted moves by less than a
thousandth.
"""

from __future__ import annotations

from collections.abc import Sequence

from kourou.model.limits import CLOCK_STEPS_MAX

STEP_MS_MIN = 20
"""How much two readings of two clocks, one after the other, may differ without a step."""

Step = tuple[int, int]
"""(position, ms): records below it were stamped by a clock that many ms behind the current one."""


class DelayClock:
    """Computes by how much due times move."""

    __slots__ = ("_difference_ms", "steps")

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self.steps: list[Step] = list(steps)
        self._difference_ms: int | None = None

    def look(self, wall_ms: int, monotonic_ms: int, log_end: int) -> int:
        """Compare both clocks, read together; return by how much wall time was set, else 0."""
        difference_ms = wall_ms - monotonic_ms
        before_ms, self._difference_ms = self._difference_ms, difference_ms
        if before_ms is None:
            return 0
        step_ms = difference_ms - before_ms
        if abs(step_ms) < STEP_MS_MIN:
            return 0
        self.steps.append((log_end, step_ms))
        while len(self.steps) > CLOCK_STEPS_MAX:
            # Merge the oldest two: messages between them may be due later.
            (_, first_ms), (position, second_ms) = self.steps[:2]
            self.steps[:2] = [(position, max(first_ms, 0) + second_ms)]
        return step_ms

    def forget(self) -> None:
        """Forget the steps, because no waiting message was stored before now."""
        self.steps.clear()

    def due_ms(self, position: int, nominal_ms: int) -> int:
        """Return the wall time from which a message at `position` is due.

        By its own store time, its delay ends at `nominal_ms`.
        """
        if not self.steps:
            return nominal_ms
        ahead_ms = sum(ms for end, ms in self.steps if position < end)
        return nominal_ms + max(0, ahead_ms)
