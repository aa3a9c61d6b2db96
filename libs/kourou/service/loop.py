"""The single-writer loop: passes batches of inputs to the core, then executes its effects.

    inputs  = everything in the inbox
    effects = core.handle(now, inputs)          one call, so a batch is the unit of work
    perform each effect, in order               so "append, then reply" needs no lock

An exception from the core or from an executor is a bug or a disk failure: the state in memory can
no longer be trusted. The loop logs the kinds of the inputs, handles nothing more, and notifies the
service's lifecycle, which ends the process. The next start recovers from the log.

State: soft. Inputs that are still in the inbox at a stop are lost, and their senders get no reply:
their requests end at the deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from kourou.clock import Clock
from kourou.model.limits import INBOX_INPUTS_MAX
from kourou.runtime import Core

Input = TypeVar("Input")
Effect = TypeVar("Effect")

_log = logging.getLogger("kourou.service")

PATIENT_S = 0.001
PATIENT_INPUTS = 64
"""`patient` inputs are handled after this delay, or when this many are queued."""


Performer = Mapping[type[Any], Callable[[Any], None]]
"""The executor for each type of effect."""


class SingleWriterLoop(Generic[Input, Effect]):
    """Drives one core. All methods except `post_threadsafe` must be called on the loop's thread.

    `refuse` replies to an input that `offer` does not admit; `on_failure` is called once, with the
    exception that the core or an executor raised.
    """

    def __init__(
        self,
        core: Core[Input, Effect],
        performer: Performer,
        clock: Clock,
        *,
        on_failure: Callable[[BaseException], None],
        refuse: Callable[[Input], None] | None = None,
        inbox_inputs_max: int = INBOX_INPUTS_MAX,
    ) -> None:
        self._core = core
        self._performer = dict(performer)
        self._clock = clock
        self._on_failure = on_failure
        self._refuse = refuse
        self._inbox_inputs_max = inbox_inputs_max
        self._inbox: list[Input] = []
        self._after: list[Input] = []
        self._from_threads: deque[Input] = deque()
        self._ringing = False
        self._scheduled = False
        self._running = False
        self._in_turn = False
        self._late: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.turns = 0
        self.inputs = 0
        self.refused = 0
        self.largest_batch = 0

    def start(self, tick: Callable[[], Input] | None = None, interval_ms: int = 100) -> None:
        """Start to handle inputs on the running loop; `tick` creates the periodic time input."""
        self._loop = asyncio.get_running_loop()
        self._running = True
        if tick is not None:
            self._arm_tick(tick, interval_ms / 1_000)
        self._ringing = False  # of inputs from before: the iteration takes them, the next ones ring
        self._schedule()

    def stop(self) -> None:
        """Stop handling inputs."""
        self._running = False
        for timer in (self._tick, self._late):
            if timer is not None:
                timer.cancel()
        self._tick = self._late = None

    @property
    def running(self) -> bool:
        """False before the start, after a stop and after a failure."""
        return self._running

    # -- inputs -----------------------------------------------------------------------------------

    def post(self, item: Input) -> None:
        """Queue an input that must be handled."""
        self._inbox.append(item)
        self._schedule()

    def offer(self, item: Input) -> bool:
        """Queue an input that may be refused (a request). False if the inbox is full."""
        admitted = self._admit(item, self._inbox)
        if admitted:
            self._schedule()
        return admitted

    def _admit(self, item: Input, queue: list[Input]) -> bool:
        if len(self._inbox) + len(self._after) >= self._inbox_inputs_max:
            self.refused += 1
            if self._refuse is not None:
                self._refuse(item)
            return False
        queue.append(item)
        return True

    def offer_all(self, items: Iterable[Input], *, patient: bool = False) -> None:
        """`offer` each input of a burst, then handle the admitted ones.

        They are handled immediately, or, with `patient`, together with what arrives within
        PATIENT_S.
        """
        for item in items:
            self._admit(item, self._inbox)
        if self._in_turn:
            self._schedule()
        elif not patient or len(self._inbox) >= PATIENT_INPUTS:
            self.turn()
        else:
            self._arm_late()

    def offer_after(self, items: Iterable[Input]) -> None:
        """`offer` inputs that are handled after the next iteration and its replies.

        If there is no iteration within PATIENT_S, they are handled then.
        """
        for item in items:
            self._admit(item, self._after)
        if len(self._after) >= PATIENT_INPUTS:
            self._schedule()
        else:
            self._arm_late()

    def _arm_late(self) -> None:
        if self._late is None and self._loop is not None:
            self._late = self._loop.call_later(PATIENT_S, self._late_turn)

    def post_threadsafe(self, item: Input) -> bool:
        """`post` from any thread; False if the loop is closed and the input will not be handled.

        One wakeup serves all inputs that are queued before it runs.
        """
        self._from_threads.append(item)
        if self._ringing:
            return True
        self._ringing = True
        if self._loop is None:  # queued before the start; `start` schedules an iteration
            return True
        try:
            self._loop.call_soon_threadsafe(self._take_from_threads)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _take_from_threads(self) -> None:
        # Reset before draining: a later producer then wakes the loop again, so no item is lost.
        self._ringing = False
        self._drain_threads()
        self.turn()

    def _drain_threads(self) -> None:
        while self._from_threads:
            self._inbox.append(self._from_threads.popleft())

    def _arm_tick(self, tick: Callable[[], Input], interval_s: float) -> None:
        loop = asyncio.get_running_loop()

        def ring() -> None:
            if self._running:
                self._tick = loop.call_later(interval_s, ring)
                self.post(tick())

        self._tick = loop.call_later(interval_s, ring)

    # -- iterations -------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._scheduled_turn)

    def _scheduled_turn(self) -> None:
        self._scheduled = False
        self._turn_with_all()

    def _late_turn(self) -> None:
        self._late = None
        self._turn_with_all()

    def _turn_with_all(self) -> None:
        if self._after:
            self._inbox += self._after
            self._after = []
        self.turn()

    def turn(self) -> None:
        """Handle everything in the inbox now. Does nothing if called within an iteration."""
        if self._in_turn or not self._running:
            return
        self._drain_threads()
        batch = self._inbox
        if not batch:
            return
        self._inbox = []
        self._in_turn = True
        try:
            performer = self._performer
            for effect in self._core.handle(self._clock.monotonic_ms(), batch):
                performer[type(effect)](effect)
        except Exception as error:  # noqa: BLE001 - whatever it is, the state is not to be trusted
            self._fail(error, batch)
            return
        finally:
            self._in_turn = False
        if self._after:
            self._schedule()
        self.turns += 1
        self.inputs += len(batch)
        self.largest_batch = max(self.largest_batch, len(batch))

    def _fail(self, error: Exception, batch: list[Input]) -> None:
        self.stop()
        kinds = Counter(type(item).__name__ for item in batch)
        _log.critical(
            "core-failed: handling %(inputs)s failed; no further input is handled",
            {"inputs": ", ".join(f"{count} x {kind}" for kind, count in kinds.items())},
            exc_info=error,
        )
        self._on_failure(error)

    def statistics(self) -> dict[str, int]:
        """Return counters: iterations, inputs handled and refused, largest batch, inbox size."""
        return {
            "turns": self.turns,
            "inputs": self.inputs,
            "refused": self.refused,
            "largest_batch": self.largest_batch,
            "waiting": len(self._inbox),
        }
