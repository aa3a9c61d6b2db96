"""Repairs damaged regions of the log with bytes from other replicas.

Only committed bytes are used, of the epoch that this replica's log has there: replicas agree about
those, so the majority's content wins, and damage at a minority never spreads. A round requests
every region before it pauses, so a region that cannot be repaired does not block the next ones. The
same holds within a region, which may be many records here and fewer on another replica: the others
report where their damage ends, and the next request begins at the first of those ends. Their
damaged bytes are never stored.

State: soft; the store's quarantine records which regions are damaged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kourou.broker.raft.peer_links import Fetched
from kourou.errors import Corrupt, DiskFull, KourouError, Rejected, StoreFaulted
from kourou.protocol.messages.replication import FetchLog, FetchLogResponse
from kourou.replication.epochs import Epochs
from kourou.replication.raft.inputs import Buffer
from kourou.store.log.quarantine import Region
from kourou.store.store import Store

_log = logging.getLogger("kourou.raft")

TIMEOUT_MS = 5_000
PAUSE_S = 1.0
"""Pause after a round in which a region could not be repaired."""


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """A snapshot of this replica's log for the repair."""

    store: Store
    epochs: Epochs
    confirmed: int

    def region(self, position: int = 0) -> Region | None:
        """Return the first damaged region from `position` on that is committed, or None."""
        for one in self.store.damaged_regions:
            if position < one.end and max(position, one.start) < self.confirmed:
                return one
        return None

    def is_damaged(self, position: int) -> bool:
        """Is this position in a damaged region that other replicas can repair?"""
        region = self.region(position)
        return region is not None and region.start <= position


@dataclass(slots=True)
class _Question:
    """A request for the bytes from `at` on, and the replicas to try.

    `next_at`: all replies so far report damage up to there; initially the end of the region.
    """

    at: int
    end: int
    others: deque[str]
    next_at: int


class Repairs:
    """Repairs one region at a time, trying one replica after the other.

    `log` returns the state of the log, None while no store is open; `fetch` sends a request to a
    replica; the other callbacks report a repair, and a disk failure, which ends the process.
    All calls must be made on the running loop.
    """

    def __init__(
        self,
        group: str,
        peers: Sequence[str],
        *,
        log: Callable[[], DamagedLog | None],
        fetch: Callable[[str, FetchLog, Fetched, int], None],
        repaired: Callable[[], None],
        failed: Callable[[BaseException], None],
        pause_s: float = PAUSE_S,
    ) -> None:
        self._group = group
        self._peers = peers
        self._log = log
        self._fetch = fetch
        self._on_repaired, self._failed = repaired, failed
        self._pause_s = pause_s
        self._busy = self._over = False
        self._resting: asyncio.TimerHandle | None = None
        self._at = 0  # in this round: everything below has been requested
        self._fruitless = False  # in this round: something could not be repaired
        self._silent: set[str] = set()  # in this round: replicas that did not reply are skipped
        self._logged: dict[tuple[int, str], str] = {}

    def look(self) -> None:
        """Start a round, if anything is damaged and none is in progress."""
        log = None if self._busy or self._over or self._resting is not None else self._log()
        if log is not None and log.region() is not None:
            self._busy = True
            self._go_on()

    def stop(self) -> None:
        """Stop repairing."""
        self._over = True
        if self._resting is not None:
            self._resting.cancel()

    # -- a round -----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Request the next damaged region; the round ends after the last one."""
        log = None if self._over else self._log()
        region = None if log is None else log.region(self._at)
        if region is None:
            self._end(log)
            return
        if self._is_new((region.start, ""), f"{region.end} {region.reason}"):
            _log.warning(
                "log-damaged: the log is damaged from %(start)d to %(end)d (%(reason)s): "
                "requesting it from other replicas",
                {"start": region.start, "end": region.end, "reason": region.reason},
            )
        self._at = max(self._at, region.start)
        others = deque(one for one in self._peers if one not in self._silent)
        self._ask(_Question(self._at, region.end, others, next_at=region.end))

    def _ask(self, question: _Question) -> None:
        if self._over or not question.others:
            self._give_up(question)
            return
        member, at = question.others.popleft(), question.at

        def done(answer: FetchLogResponse | KourouError, body: Buffer) -> None:
            if self._over:
                return
            if self._repaired(question, member, answer, body):
                self._on_repaired()
                self._go_on()
            elif not self._over:
                self._ask(question)

        request = FetchLog(
            group=self._group,
            position=at,
            max_bytes=question.end - at,
            damaged=True,
        )
        self._fetch(member, request, done, TIMEOUT_MS)

    def _give_up(self, question: _Question) -> None:
        """Continue with the next position, in another loop iteration: there may be many."""
        if self._over:
            return
        self._fruitless = True
        self._at = question.next_at
        asyncio.get_running_loop().call_soon(self._go_on)

    def _end(self, log: DamagedLog | None) -> None:
        """End the round: drop messages about repaired regions, and pause if some are left."""
        self._busy, self._at = False, 0
        self._silent.clear()
        if log is not None:
            logged = self._logged.items()
            self._logged = {key: text for key, text in logged if log.is_damaged(key[0])}
        if self._fruitless and not self._over:
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(self._pause_s, self._rested)
        self._fruitless = False

    def _rested(self) -> None:
        self._resting = None
        self.look()

    # -- replies -----------------------------------------------------------------------------------

    def _repaired(
        self,
        question: _Question,
        member: str,
        answer: FetchLogResponse | KourouError,
        body: Buffer,
    ) -> bool:
        at = question.at
        if isinstance(answer, KourouError):
            if not isinstance(answer, Corrupt | Rejected):
                self._silent.add(member)
            self._cannot(member, at, answer)
            return False
        log = self._log()
        if log is None or answer.position != at or not len(body):
            return False
        if log.epochs.run_from(at).epoch != answer.data_epoch:
            return False
        if answer.damage:
            if answer.end > at:
                question.next_at = min(question.next_at, answer.end)
            if self._is_new((at, member), answer.damage):
                _log.info(
                    "replica-damaged: %(replica)s is damaged at %(position)d as well: %(reason)s",
                    {"replica": member, "position": at, "reason": answer.damage},
                )
            return False
        try:
            end = log.store.repair(at, body)
        except StoreFaulted as error:
            self._over = True
            self._failed(error)
            return False
        except (Corrupt, Rejected, DiskFull) as error:
            self._cannot(member, at, error)
            return False
        _log.warning(
            "log-repaired: the log was repaired from %(start)d to %(end)d with data from "
            "%(source)s",
            {"start": at, "end": end, "source": member},
        )
        return True

    def _cannot(self, member: str, at: int, error: KourouError) -> None:
        if self._is_new((at, member), str(error)):
            _log.info(
                "repair-failed: %(replica)s cannot repair the log at %(position)d: %(error)s",
                {"replica": member, "position": at, "error": error},
            )

    def _is_new(self, key: tuple[int, str], text: str) -> bool:
        """Whether the text is new for this position: every round produces it again."""
        if self._logged.get(key) == text:
            return False
        self._logged[key] = text
        return True
