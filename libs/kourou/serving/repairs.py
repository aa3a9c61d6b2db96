"""Good bytes of other members in the place of damaged ones.

Lives here: which damaged region is asked for, whom, and the checks that an answer passes.
May not live here: finding damage and putting bytes back (kourou.store.copies), connections
(kourou.serving.peer_links).

Only confirmed bytes are taken, of the epoch that this member's log has there: members agree about
those, so what a majority has wins, and damage at a minority never spreads.

State: soft; which regions are damaged is the store's to remember (its quarantine).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kourou.errors import Corrupt, DiskFull, KourouError, Rejected, StoreFaulted
from kourou.protocol.messages.replication import FetchLog, FetchLogResponse
from kourou.replication.epochs import Epochs
from kourou.replication.raft.inputs import Buffer
from kourou.serving.peer_links import Fetched
from kourou.store.quarantine import Region
from kourou.store.store import Store

_log = logging.getLogger("kourou.raft")

TIMEOUT_MS = 5_000
PAUSE_S = 1.0
"""Between two rounds in which no member could help."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """This member's log as a repair finds it at a moment."""

    store: Store
    epochs: Epochs
    confirmed: int

    def region(self) -> Region | None:
        """The first damaged region of which other members can have good bytes."""
        found = (one for one in self.store.damaged_regions if one.start < self.confirmed)
        return next(found, None)


class Repairs:
    """Repairs one region at a time, one member after the other.

    `log` tells how the log stands, None while no store is open; `fetch` asks a member;
    `mended` is called behind each repair, `failed` when the disk fails, which ends the process. All
    calls belong on the running loop.
    """

    def __init__(
        self,
        group: str,
        peers: Sequence[str],
        *,
        log: Callable[[], Damaged | None],
        fetch: Callable[[str, FetchLog, Fetched, int], None],
        mended: Callable[[], None],
        failed: Callable[[BaseException], None],
        pause_s: float = PAUSE_S,
    ) -> None:
        self._group = group
        self._peers = peers
        self._log = log
        self._fetch = fetch
        self._mended, self._failed = mended, failed
        self._pause_s = pause_s
        self._busy = self._over = False
        self._resting: asyncio.TimerHandle | None = None
        self._told = -1

    def look(self) -> None:
        """Begin with the first damaged region, if there is one and no repair is under way."""
        log = None if self._busy or self._over or self._resting is not None else self._log()
        region = None if log is None else log.region()
        if region is None:
            return
        if region.start != self._told:
            self._told = region.start
            _log.warning(
                "the log is damaged from %d to %d (%s): asking other members",
                *(region.start, region.end, region.reason),
            )
        self._busy = True
        self._ask(region, deque(self._peers))

    def stop(self) -> None:
        """Repair nothing more."""
        self._over = True
        if self._resting is not None:
            self._resting.cancel()

    def _ask(self, region: Region, others: deque[str]) -> None:
        if self._over or not others:
            self._rest()
            return
        member = others.popleft()

        def done(answer: FetchLogResponse | KourouError, body: Buffer) -> None:
            if self._over:
                return
            if self._repaired(region, member, answer, body):
                self._busy = False
                self._mended()
                self.look()
            elif not self._over:
                self._ask(region, others)

        size = region.end - region.start
        request = FetchLog(group=self._group, position=region.start, max_bytes=size)
        self._fetch(member, request, done, TIMEOUT_MS)

    def _rest(self) -> None:
        self._busy = False
        if not self._over:
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(self._pause_s, self._rested)

    def _rested(self) -> None:
        self._resting = None
        self.look()

    def _repaired(
        self, region: Region, member: str, answer: FetchLogResponse | KourouError, body: Buffer
    ) -> bool:
        if isinstance(answer, KourouError):
            _log.info("%s does not help with the log at %d: %s", member, region.start, answer)
            return False
        log = self._log()
        if log is None or answer.position != region.start or not len(body):
            return False
        if log.epochs.run_from(region.start).epoch != answer.data_epoch:
            return False
        try:
            end = log.store.repair(region.start, body)
        except StoreFaulted as error:
            self._over = True
            self._failed(error)
            return False
        except (Corrupt, Rejected, DiskFull) as error:
            _log.info("%s has nothing for the log at %d: %s", member, region.start, error)
            return False
        _log.warning("the log is good again from %d to %d, by %s", region.start, end, member)
        return True
