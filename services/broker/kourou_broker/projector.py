"""Control events flow from the log into the event store, behind the data path's back.

Lives here: how far the projection is, and the thread that drives it.
May not live here: what the event store does with them.

State: projection (in the database). While the database cannot be reached nothing else stops; the
events wait in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kourou.engine.control import CONTROL, ControlState
from kourou.engine.events import Recorded
from kourou.engine.ports import StoreView
from kourou.errors import Corrupt, MetadataUnavailable
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
    ) -> None:
        self._view = view
        self._events = events
        self._control = control
        self._confirmed = confirmed
        self._task: asyncio.Task[None] | None = None
        self._offset = 0
        self.trouble = ""

    async def start(self) -> None:
        """Begin where the database stands."""
        self._offset = (await asyncio.to_thread(self._events.info)).next_offset
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Project what is left, if the database can be reached, and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            while await self._step():
                pass
        except MetadataUnavailable as error:
            _log.warning("stopping with control events not projected: %s", error)
        await asyncio.to_thread(self._events.close)

    @property
    def behind(self) -> int:
        """How many control events the database lacks."""
        span = self._view.queue_range(CONTROL_TOPIC, 0)
        return 0 if span is None else max(span[1] - self._offset, 0)

    async def _run(self) -> None:
        while True:
            try:
                more = await self._step()
                self.trouble = ""
                await asyncio.sleep(0 if more else IDLE_S)
            except MetadataUnavailable as error:
                if not self.trouble:
                    _log.warning(
                        "the event store cannot be reached; the data path goes on: %s", error
                    )
                self.trouble = str(error)
                await asyncio.sleep(RETRY_S)

    async def _step(self) -> bool:
        """Project one batch; True if there may be more."""
        batch = self._next()
        if not batch:
            return False
        try:
            await asyncio.to_thread(self._events.append, batch)
        except Corrupt as error:
            _log.error("the event store does not match the log; it starts anew: %s", error)
            await asyncio.to_thread(self._start_anew)
            return False
        self._offset = batch[-1].offset + 1
        info = await asyncio.to_thread(self._events.info)
        if info.snapshot_due and self._control.next_offset == self._offset:
            taken = CONTROL.snapshot(self._control)
            await asyncio.to_thread(self._events.snapshot, taken)
        return True

    def _start_anew(self) -> None:
        taken = CONTROL.snapshot(self._control)
        self._events.forget()
        self._events.begin(taken)
        self._offset = taken.offset

    def _next(self) -> list[Recorded]:
        span = self._view.queue_range(CONTROL_TOPIC, 0)
        if span is None or span[1] <= self._offset:
            return []
        return read_control_events(self._view, max(self._offset, span[0]), self._confirmed())
