"""Projects control events from the log into the event store, and queries their history there.

State: projection (in the database). While the database is unreachable everything else continues;
the events wait in the log. After each outage its position is read again and compared with the log,
because the database may have been restored to an earlier state (a backup, a failover to a replica).

A database that hangs blocks the threads of this module and nothing else, and delays a stop only
briefly. A query that exceeds its time limit is answered with METADATA_UNAVAILABLE; its thread ends
by the database's own limits (decision 0031).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from kourou.authorization.access_uses import UsesQuestion
from kourou.authorization.audit import AuditQuestion
from kourou.broker.storage.control_recovery import (
    agree,
    aside,
    is_confirmed,
    last_of_both,
    read_control_events,
)
from kourou.engine.admin.history import Found
from kourou.engine.control import CONTROL, ControlState
from kourou.engine.effects import AskHistory, Effect
from kourou.engine.inputs import HistoryAnswered, Input
from kourou.engine.ports import StoreView
from kourou.errors import Corrupt, KourouError, MetadataUnavailable, Throttled
from kourou.events.control_events import Recorded
from kourou.eventstore.event_store import EventStore, answer
from kourou.model.limits import HISTORY_QUESTIONS_MAX
from kourou.model.names import CONTROL_TOPIC
from kourou.runtime import ReplyTo
from kourou.service.audit_log import search
from kourou.service.use_log import try_uses

_log = logging.getLogger("kourou.broker")

IDLE_S = 0.5
RETRY_S = 2.0
STOP_S = 2.0
"""How long a stop waits for the database to store the rest; unprojected events stay in the log."""

Result = TypeVar("Result")


class Projector:
    """Runs as one task of the service's loop; reads on the loop, writes in a thread."""

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
        """Start from the database's position, as soon as it is reachable."""
        self._task = asyncio.create_task(self._run())

    def attach(self, control: ControlState, confirmed: Callable[[], int]) -> None:
        """Take snapshots of this state: another core has taken over the same log."""
        self._control, self._confirmed = control, confirmed

    async def step(self) -> None:
        """Run a step now instead of after the pause; returns when it is done or has failed."""
        if self._ending.is_set():
            raise MetadataUnavailable("the broker is stopping")
        self._wanted.set()
        await self._stepped.wait()

    async def stop(self) -> None:
        """Project the rest, if the database stores it in time, and stop."""
        self._ending.set()
        self._wanted.set()
        rest = asyncio.create_task(self._rest())
        try:
            # Not cancelled: a thread may be writing, and there must be no second writer.
            if not (await asyncio.wait({rest}, timeout=self._stop_s))[0]:
                _log.warning(
                    "projection-abandoned: the event store does not respond; stopping without it: "
                    "%(events)d control events are in the log only",
                    {"events": self.behind},
                )
                self._events.abandon()
        finally:
            self._over = True
        await rest
        await asyncio.get_running_loop().run_in_executor(self._thread, self._events.close)
        self._thread.shutdown(cancel_futures=True)  # the close was its last call: it ends at once

    @property
    def projected(self) -> int:
        """Number of control events that the database certainly has; 0 while it is unreachable."""
        return self._offset if self._in_touch else 0

    @property
    def behind(self) -> int:
        """Number of control events that the database lacks, as far as is known.

        The newest ones may not be in the queue yet: what was recorded counts.
        """
        return max(self._control.next_offset - self._offset, 0)

    async def _run(self) -> None:
        while not self._ending.is_set():
            self._wanted.clear()
            try:
                more = await self._step()
            except KourouError as error:
                if not self.trouble:
                    _log.warning(
                        "projection-stalled: control events are not written to the event store; "
                        "messages are not affected: %(error)s",
                        {"error": error},
                    )
                self.trouble = str(error)
                self._in_touch = False
                pause_s = self._retry_s
            else:
                if self.trouble:
                    _log.info(
                        "projection-resumed: control events are written to the event store again"
                    )
                self.trouble = ""
                pause_s = 0 if more else self._idle_s
            done, self._stepped = self._stepped, asyncio.Event()
            done.set()
            await self._pause(pause_s)

    async def _rest(self) -> None:
        """Wait for the task's end, and project the rest."""
        if self._task is not None:
            (ended,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(ended, Exception):
                _log.error(
                    "projection-failed: writing to the event store failed unexpectedly",
                    exc_info=ended,
                )
        try:
            while await self._step():
                pass
        except KourouError as error:
            _log.warning(
                "projection-incomplete: stopping with control events that are not in the event "
                "store: %(error)s",
                {"error": error},
            )

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()

    async def _in_thread(self, call: Callable[..., Result], *given: object) -> Result:
        """Run a call on the projector's own thread: a hanging database blocks no other work.

        After a stop has given up waiting, the call in progress is the last one: the log is about to
        be closed, and events that cannot be read from it would be projected as lost.
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
            await self._restart(error)
            return False
        self._offset = batch[-1].offset + 1
        info = await self._in_thread(self._events.info)
        control = self._control
        # A version that can read all events about users must start before the first unreadable one.
        current = control.next_offset == self._offset and not control.access.unreadable
        if info.snapshot_due and current:
            await self._in_thread(self._events.snapshot, CONTROL.snapshot(self._control))
        return True

    async def _get_in_touch(self) -> bool:
        """Compare log and database; False while the common part is not committed.

        Until then it may still be removed from the log.
        """
        reaches = (await self._in_thread(self._events.info)).next_offset
        if not is_confirmed(self._view, min(reaches, self._high()), self._confirmed()):
            return False
        last = last_of_both(self._view, reaches, self._confirmed())
        self._offset = await self._in_thread(agree, self._events, reaches, self._high(), last)
        self._in_touch = True
        return True

    async def _restart(self, error: Corrupt) -> None:
        taken = CONTROL.snapshot(self._control)  # on the loop: it changes the state

        def begin() -> str:
            kept = aside(self._events)
            self._events.begin(taken)
            return kept

        self._in_touch = False  # if this fails, the database's position is read again
        if not is_confirmed(self._view, taken.offset, self._confirmed()):
            # A follower's state is ahead of what its group has committed, and might be truncated.
            raise MetadataUnavailable("the newest control events are not committed yet")
        _log.error(
            "event-store-mismatched: the event store does not match the log; it is rebuilt: "
            "%(error)s",
            {"error": error},
        )
        _log.warning(
            "event-store-restarted: the event store starts a new history: %(history)s",
            {"history": await self._in_thread(begin)},
        )
        self._offset = taken.offset
        self._in_touch = True

    def _high(self) -> int:
        return (self._view.queue_range(CONTROL_TOPIC, 0) or (0, 0))[1]

    def _next(self, offset: int) -> list[Recorded]:
        span = self._view.queue_range(CONTROL_TOPIC, 0)
        if span is None or span[1] <= offset:
            return []
        return read_control_events(self._view, max(offset, span[0]), self._confirmed())


# -- history queries -------------------------------------------------------------------------------


THREADS = 2
"""Two, so that a slow query does not block the next one."""

FLUSH_PAUSE_S = 0.02
"""Interval of the check whether the log was flushed as far as the query needs."""


class HistoryExecutor:
    """Runs on the service's loop; `post` passes HistoryAnswered to the core.

    It also searches the files of the audit.
    """

    def __init__(
        self,
        events: EventStore,
        projector: Callable[[], Projector | None],
        *,
        flush: Callable[[], None],
        post: Callable[[Input], None],
        audit_folder: Path,
    ) -> None:
        self._audit_folder = audit_folder
        self._events = events
        self._projector = projector
        self._flush = flush
        self._post = post
        self._threads = ThreadPoolExecutor(THREADS, "kourou-history")
        self._queries: dict[int, tuple[ReplyTo, asyncio.Task[None]]] = {}
        self._asked = 0
        self._unavailable = 0

    def performers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return the executor for each type of effect."""
        return {AskHistory: self._ask}

    def statistics(self) -> dict[str, int]:
        """Return the number of queries so far, of failed ones, and of open ones."""
        return {
            "asked": self._asked,
            "unavailable": self._unavailable,
            "waiting": len(self._queries),
        }

    def stop(self) -> list[ReplyTo]:
        """Stop; returns the reply addresses of open queries.

        The database must be closed after this.
        """
        queries, self._queries = list(self._queries.values()), {}
        for _, task in queries:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        return [to for to, _ in queries]

    def _ask(self, effect: AskHistory) -> None:
        self._asked += 1
        if len(self._queries) >= HISTORY_QUESTIONS_MAX:
            busy = Throttled(
                f"{HISTORY_QUESTIONS_MAX} requests are waiting for the event database "
                "already, the maximum"
            )
            self._post(HistoryAnswered(effect.received, error=busy))
            return
        number = self._asked
        task = asyncio.get_running_loop().create_task(self._come_back(number, effect))
        self._queries[number] = effect.received.to, task

    async def _come_back(self, number: int, effect: AskHistory) -> None:
        answered = await self._answered(effect)
        self._unavailable += isinstance(answered.error, MetadataUnavailable)
        del self._queries[number]
        self._post(answered)

    async def _answered(self, effect: AskHistory) -> HistoryAnswered:
        received = effect.received
        try:
            async with asyncio.timeout(effect.wait_ms / 1_000):
                return HistoryAnswered(received, await self._found(effect))
        except TimeoutError:
            silent = MetadataUnavailable(self._silent(effect.wait_ms))
            return HistoryAnswered(received, error=silent)
        except KourouError as error:
            return HistoryAnswered(received, error=error)
        except Exception as error:  # noqa: BLE001 - a bug; reading the history has changed no state
            _log.exception("history-read-failed: reading the history failed")
            bug = KourouError(f"reading the history failed: {error!r}")
            return HistoryAnswered(received, error=bug)

    def _silent(self, wait_ms: int) -> str:
        projector = self._projector()
        why = projector.trouble if projector is not None else ""
        return f"the event database did not respond within {wait_ms} ms" + (
            f": {why}" if why else ""
        )

    async def _found(self, effect: AskHistory) -> Found:
        loop, question = asyncio.get_running_loop(), effect.question
        if isinstance(question, AuditQuestion):
            return await loop.run_in_executor(self._threads, search, self._audit_folder, question)
        if isinstance(question, UsesQuestion):
            uses = self._audit_folder.with_name("uses")
            return await loop.run_in_executor(self._threads, try_uses, uses, question)
        await self._caught_up(effect.upto)
        return await loop.run_in_executor(
            self._threads, answer, self._events, question, effect.upto
        )

    async def _caught_up(self, upto: int) -> None:
        """Wait until all decisions before `upto` are on disk and in the database."""
        projector = self._projector()
        if projector is None:
            raise MetadataUnavailable(
                "the broker is starting: the event database is not available yet"
            )
        while projector.projected < upto:
            self._flush()
            await projector.step()
            if projector.trouble:
                raise MetadataUnavailable(projector.trouble)
            if projector.projected < upto:
                await asyncio.sleep(FLUSH_PAUSE_S)
