"""Locks a group's dead-letter queues while a job reads and resends dead letters.

The locks are acquired before the dead letters are selected: an earlier selection might contain
messages that another gateway has sent in the meantime.

State: soft. Brokers drop a lock that is not refreshed for QUEUE_LOCK_MS.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Self

from kourou.client.session.background import background
from kourou.errors import KourouError, Unavailable
from kourou.model.limits import QUEUE_LOCK_MS
from kourou_console.gateway import Gateway

REFRESH_S = QUEUE_LOCK_MS / 3_000

_log = logging.getLogger("kourou.console")


class DeadLetterLocks:
    """`async with LetterLocks(gateway, group) as locks:`; call `locks.check()` before each use.

    Raises Unavailable if another client holds a lock, on entry or in `check`.
    """

    def __init__(self, gateway: Gateway, group: str) -> None:
        self._dead_letters = gateway.admin.dead_letters
        self._group = group
        self._keeper: asyncio.Task[None] | None = None
        self._trouble: KourouError | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._take()
        except BaseException:
            await self._give_back()
            raise
        self._keeper = background(self._keep(), f"locks of dead letters of {self._group}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        await self._give_back()

    def check(self) -> None:
        """Raise the error if the locks were lost since."""
        if self._trouble is not None:
            raise self._trouble

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self._take()
            except KourouError as error:
                self._trouble = error
                return

    async def _take(self) -> None:
        refused = await self._dead_letters.lock(self._group)
        if refused:
            raise Unavailable(
                f"another client holds the lock of {refused[0]!s}: another gateway redelivers "
                "these dead letters, or did until a minute ago",
                hint=(
                    "two jobs at once would send some messages twice: check the other gateway, "
                    "or retry later"
                ),
            )

    async def _give_back(self) -> None:
        try:
            await self._dead_letters.unlock(self._group)
        except KourouError as error:  # then they expire
            _log.info(
                "the locks of dead letters of group %s could not be released: %s",
                self._group,
                error,
            )
