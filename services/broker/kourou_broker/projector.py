"""Control events flow from the log into the event store, behind the data path's back.

Lives here: how far the projection is, and the thread that drives it.
May not live here: what the event store does with them.

State: projection (in the database). While the database cannot be reached nothing else stops; the
events wait in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from kourou.engine.control import CONTROL, ControlState
from kourou.engine.events import Recorded
from kourou.engine.ports import StoreView
from kourou.errors import Corrupt, KourouError
from kourou.eventstore.event_store import EventStore
from kourou.model.names import CONTROL_TOPIC
from kourou_broker.control_log import read_control_events

_log = logging.getLogger("kourou.broker")

IDLE_S = 0.5
RETRY_S = 5.0


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
    ) -> None:
        self._view = view
        self._events = events
        self._control = control
        self._confirmed = confirmed
        self._idle_s = idle_s
        self._retry_s = retry_s
        self._task: asyncio.Task[None] | None = None
        self._offset: int | None = None
        self._ending = asyncio.Event()
        self.trouble = ""

    def start(self) -> None:
        """Begin where the database stands, as soon as it can be asked."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Project what is left, if the database can be reached, and end."""
        self._ending.set()
        if self._task is not None:
            # Not cancelled: a thread may be writing, and nobody else must write meanwhile.
            (ended,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(ended, Exception):
                _log.error("projecting ended with an error", exc_info=ended)
        try:
            while await self._step():
                pass
        except KourouError as error:
            _log.warning("stopping with control events not projected: %s", error)
        await asyncio.to_thread(self._events.close)

    @property
    def behind(self) -> int:
        """How many control events the database lacks, as far as is known."""
        span = self._view.queue_range(CONTROL_TOPIC, 0)
        return 0 if span is None else max(span[1] - (self._offset or 0), 0)

    async def _run(self) -> None:
        while not self._ending.is_set():
            try:
                more = await self._step()
            except KourouError as error:
                if not self.trouble:
                    _log.warning(
                        "control events are not projected now; the data path goes on: %s", error
                    )
                self.trouble = str(error)
                await self._pause(self._retry_s)
            else:
                self.trouble = ""
                await self._pause(0 if more else self._idle_s)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    async def _step(self) -> bool:
        """Project one batch; True if there may be more."""
        if self._offset is None:
            self._offset = (await asyncio.to_thread(self._events.info)).next_offset
        batch = self._next(self._offset)
        if not batch:
            return False
        try:
            await asyncio.to_thread(self._events.append, batch)
        except Corrupt as error:
            _log.error("the event store does not match the log; it starts anew: %s", error)
            await self._start_anew()
            return False
        self._offset = batch[-1].offset + 1
        info = await asyncio.to_thread(self._events.info)
        if info.snapshot_due and self._control.next_offset == self._offset:
            taken = CONTROL.snapshot(self._control)
            await asyncio.to_thread(self._events.snapshot, taken)
        return True

    async def _start_anew(self) -> None:
        taken = CONTROL.snapshot(self._control)  # here: the loop changes the state meanwhile

        def begin() -> None:
            self._events.forget()
            self._events.begin(taken)

        self._offset = None  # should this fail, the database is asked where it stands
        await asyncio.to_thread(begin)
        self._offset = taken.offset

    def _next(self, offset: int) -> list[Recorded]:
        span = self._view.queue_range(CONTROL_TOPIC, 0)
        if span is None or span[1] <= offset:
            return []
        return read_control_events(self._view, max(offset, span[0]), self._confirmed())
