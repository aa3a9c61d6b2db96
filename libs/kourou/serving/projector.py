"""Control events flow from the log into the event store, behind the data path's back.

State: projection (in the database). While the database cannot be reached nothing else stops; the
events wait in the log. Whenever it comes back it is asked anew how far it reaches, for it may come
back as it was earlier (a backup, a replica that took over), and compared with the log.

A database that hangs holds up this module's own thread and nothing else, and a stop not for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kourou.engine.control import CONTROL, ControlState
from kourou.engine.ports import StoreView
from kourou.errors import Corrupt, KourouError, MetadataUnavailable
from kourou.events.control_events import Recorded
from kourou.eventstore.event_store import EventStore
from kourou.model.names import CONTROL_TOPIC
from kourou.serving.agreement import agree, aside, is_confirmed, last_of_both
from kourou.serving.control_log import read_control_events

_log = logging.getLogger("kourou.broker")

IDLE_S = 0.5
RETRY_S = 2.0
STOP_S = 2.0
"""How long a stop waits for the database to take the rest; what is left stays in the log."""

Result = TypeVar("Result")


class Projector:
    """Runs as one task of the service's loop; reads there, writes in a thread."""

    def __init__(
        self,
        view: StoreView,
        events: EventStore,
        control: ControlState,
        confirmed: Callable[[], int],
        *,
        idle_s: float = IDLE_S,
        retry_s: float = RETRY_S,
        stop_s: float = STOP_S,
    ) -> None:
        self._view = view
        self._events = events
        self._control = control
        self._confirmed = confirmed
        self._idle_s = idle_s
        self._retry_s = retry_s
        self._stop_s = stop_s
        self._thread = ThreadPoolExecutor(1, "event-store")
        self._task: asyncio.Task[None] | None = None
        self._offset = 0
        self._in_touch = False
        self._ending = asyncio.Event()
        self._over = False
        self._wanted = asyncio.Event()
        self._stepped = asyncio.Event()
        self.trouble = ""

    def start(self) -> None:
        """Begin where the database stands, as soon as it can be asked."""
        self._task = asyncio.create_task(self._run())

    def attach(self, control: ControlState, confirmed: Callable[[], int]) -> None:
        """Another core has taken over the same log: its state is the one to take snapshots of."""
        self._control, self._confirmed = control, confirmed

    async def step(self) -> None:
        """Go on now and not after a pause; returns when one step is done, or has failed."""
        if self._ending.is_set():
            raise MetadataUnavailable("the broker is stopping")
        self._wanted.set()
        await self._stepped.wait()

    async def stop(self) -> None:
        """Project what is left, if the database takes it in time, and end."""
        self._ending.set()
        self._wanted.set()
        rest = asyncio.create_task(self._rest())
        try:
            # Not cancelled: a thread may be writing, and nobody else must write meanwhile.
            if not (await asyncio.wait({rest}, timeout=self._stop_s))[0]:
                _log.warning(
                    "the event store does not respond; stopping without it: %d control events are"
                    " in the log only",
                    self.behind,
                )
                self._events.abandon()
        finally:
            self._over = True
        await rest
        await asyncio.get_running_loop().run_in_executor(self._thread, self._events.close)
        self._thread.shutdown(wait=False)

    @property
    def projected(self) -> int:
        """How many control events the database surely has; 0 while it cannot be asked."""
        return self._offset if self._in_touch else 0

    @property
    def behind(self) -> int:
        """How many control events the database lacks, as far as is known."""
        return max(self._high() - self._offset, 0)

    async def _run(self) -> None:
        while not self._ending.is_set():
            self._wanted.clear()
            try:
                more = await self._step()
            except KourouError as error:
                if not self.trouble:
                    _log.warning(
                        "control events are not written to the event store; messages are not "
                        "affected: %s",
                        error,
                    )
                self.trouble = str(error)
                self._in_touch = False
                pause_s = self._retry_s
            else:
                if self.trouble:
                    _log.info("control events are written to the event store again")
                self.trouble = ""
                pause_s = 0 if more else self._idle_s
            done, self._stepped = self._stepped, asyncio.Event()
            done.set()
            await self._pause(pause_s)

    async def _rest(self) -> None:
        """Let the task end, and project what is left."""
        if self._task is not None:
            (ended,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(ended, Exception):
                _log.error("writing to the event store failed unexpectedly", exc_info=ended)
        try:
            while await self._step():
                pass
        except KourouError as error:
            _log.warning("stopping with control events that are not in the event store: %s", error)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()

    async def _in_thread(self, call: Callable[..., Result], *given: object) -> Result:
        """A thread of our own: a database that hangs takes none from anybody else.

        When a stop waits no longer, the call under way is the last one: the log is about to close,
        and what cannot be read from it would be projected as lost.
        """
        result = await asyncio.get_running_loop().run_in_executor(self._thread, call, *given)
        if self._over:
            raise MetadataUnavailable("the broker stops; the log keeps what is not projected")
        return result

    async def _step(self) -> bool:
        """Project one batch; True if there may be more."""
        try:
            if not (self._in_touch or await self._get_in_touch()):
                return False
            batch = self._next(self._offset)
            if not batch:
                return False
            await self._in_thread(self._events.append, batch)
        except Corrupt as error:
            await self._start_anew(error)
            return False
        self._offset = batch[-1].offset + 1
        info = await self._in_thread(self._events.info)
        if info.snapshot_due and self._control.next_offset == self._offset:
            await self._in_thread(self._events.snapshot, CONTROL.snapshot(self._control))
        return True

    async def _get_in_touch(self) -> bool:
        """Compare the two; False while the log's part of it may still be taken back."""
        reaches = (await self._in_thread(self._events.info)).next_offset
        if not is_confirmed(self._view, min(reaches, self._high()), self._confirmed()):
            return False
        last = last_of_both(self._view, reaches, self._confirmed())
        self._offset = await self._in_thread(agree, self._events, reaches, self._high(), last)
        self._in_touch = True
        return True

    async def _start_anew(self, error: Corrupt) -> None:
        taken = CONTROL.snapshot(self._control)  # here: the loop changes the state meanwhile

        def begin() -> str:
            kept = aside(self._events)
            self._events.begin(taken)
            return kept

        self._in_touch = False  # should this fail, the database is asked where it stands
        if not is_confirmed(self._view, taken.offset, self._confirmed()):
            # A follower's state is ahead of what its group has confirmed, and might be taken back.
            raise MetadataUnavailable("the newest control events are not committed yet")
        _log.error("the event store does not match the log; it is rebuilt: %s", error)
        _log.warning("the event store starts a new history: %s", await self._in_thread(begin))
        self._offset = taken.offset
        self._in_touch = True

    def _high(self) -> int:
        return (self._view.queue_range(CONTROL_TOPIC, 0) or (0, 0))[1]

    def _next(self, offset: int) -> list[Recorded]:
        span = self._view.queue_range(CONTROL_TOPIC, 0)
        if span is None or span[1] <= offset:
            return []
        return read_control_events(self._view, max(offset, span[0]), self._confirmed())
