"""When is a delayed message due, on a machine whose clock may be set?

State: projection. The steps stand in the records of kourou.engine.delay_progress.

A message is due when its delay has passed since it was stored, and its store time is wall time.
If somebody sets the clock forward, wall time says too early that it is due. So every step is noted
with the place of the log where it happened: what lies before it was stamped by the former clock.
After a step backwards such messages are due when wall time says so, later than need be: neither
clock must show a message that came early. A step back that is taken back costs nothing.

Drift is no step: between two looks a clock that is being adjusted moves by less than a thousandth.
"""

from __future__ import annotations

from collections.abc import Sequence

from kourou.model.limits import CLOCK_STEPS_MAX

STEP_MS_MIN = 20
"""What two readings of two clocks, one after the other, may differ by without a step."""

Step = tuple[int, int]
"""(position, ms): what lies below it was stamped by a clock so many ms behind today's."""


class DelayClock:
    """Knows by how much due times move."""

    __slots__ = ("_difference_ms", "steps")

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self.steps: list[Step] = list(steps)
        self._difference_ms: int | None = None

    def look(self, wall_ms: int, monotonic_ms: int, log_end: int) -> int:
        """Both clocks as they were read together; returns by how much wall time was set, else 0."""
        difference_ms = wall_ms - monotonic_ms
        before_ms, self._difference_ms = self._difference_ms, difference_ms
        if before_ms is None:
            return 0
        step_ms = difference_ms - before_ms
        if abs(step_ms) < STEP_MS_MIN:
            return 0
        self.steps.append((log_end, step_ms))
        while len(self.steps) > CLOCK_STEPS_MAX:
            # The oldest two become one, for whom it makes later.
            (_, first_ms), (position, second_ms) = self.steps[:2]
            self.steps[:2] = [(position, max(first_ms, 0) + second_ms)]
        return step_ms

    def forget(self) -> None:
        """Nothing waits that was stored before now."""
        self.steps.clear()

    def due_ms(self, position: int, nominal_ms: int) -> int:
        """The wall time from which on a message at `position` is due whose delay ends, by its own
        store time, at `nominal_ms`."""
        if not self.steps:
            return nominal_ms
        ahead_ms = sum(ms for end, ms in self.steps if position < end)
        return nominal_ms + max(0, ahead_ms)
