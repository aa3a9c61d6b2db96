"""Queries the event database off the loop, with a time limit.

State: soft. A query that exceeds its limit is answered with METADATA_UNAVAILABLE; the thread that
still waits for the database ends by the database's own limits (decision 0031).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kourou.engine.admin.history import Found
from kourou.engine.effects import AskHistory, Effect
from kourou.engine.inputs import HistoryAnswered, Input
from kourou.errors import KourouError, MetadataUnavailable, Throttled
from kourou.eventstore.event_store import EventStore
from kourou.eventstore.history_reader import answer
from kourou.model.limits import HISTORY_QUESTIONS_MAX
from kourou.runtime.core import ReplyTo
from kourou.serving.projector import Projector

_log = logging.getLogger("kourou.broker")

THREADS = 2
"""Two, so that a slow query does not block the next one."""

FLUSH_PAUSE_S = 0.02
"""Interval of the check whether the log was flushed as far as the query needs."""


class HistoryExecutor:
    """Runs on the service's loop; `post` passes HistoryAnswered to the core."""

    def __init__(
        self,
        events: EventStore,
        projector: Callable[[], Projector | None],
        *,
        flush: Callable[[], None],
        post: Callable[[Input], None],
    ) -> None:
        self._events = events
        self._projector = projector
        self._flush = flush
        self._post = post
        self._threads = ThreadPoolExecutor(THREADS, "kourou-history")
        self._asking: dict[int, tuple[ReplyTo, asyncio.Task[None]]] = {}
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
            "waiting": len(self._asking),
        }

    def stop(self) -> list[ReplyTo]:
        """Stop; returns the reply addresses of open queries.

        The database must be closed after this.
        """
        asking, self._asking = list(self._asking.values()), {}
        for _, task in asking:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        return [to for to, _ in asking]

    def _ask(self, effect: AskHistory) -> None:
        self._asked += 1
        if len(self._asking) >= HISTORY_QUESTIONS_MAX:
            busy = Throttled(
                f"{HISTORY_QUESTIONS_MAX} requests are waiting for the event database "
                "already, the maximum"
            )
            self._post(HistoryAnswered(effect.received, error=busy))
            return
        number = self._asked
        task = asyncio.get_running_loop().create_task(self._come_back(number, effect))
        self._asking[number] = effect.received.to, task

    async def _come_back(self, number: int, effect: AskHistory) -> None:
        answered = await self._answered(effect)
        self._unavailable += isinstance(answered.error, MetadataUnavailable)
        del self._asking[number]
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
            _log.exception("reading the history failed")
            bug = KourouError(f"reading the history failed: {error!r}")
            return HistoryAnswered(received, error=bug)

    def _silent(self, wait_ms: int) -> str:
        projector = self._projector()
        why = projector.trouble if projector is not None else ""
        return f"the event database did not respond within {wait_ms} ms" + (
            f": {why}" if why else ""
        )

    async def _found(self, effect: AskHistory) -> Found:
        await self._caught_up(effect.upto)
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, answer, self._events, effect.question, effect.upto
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
