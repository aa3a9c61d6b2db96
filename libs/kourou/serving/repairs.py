"""Good bytes of other members in the place of damaged ones.

Only confirmed bytes are taken, of the epoch that this member's log has there: members agree about
those, so what a majority has wins, and damage at a minority never spreads. A round asks for every
region before it rests, so what nobody can mend keeps nobody from mending what follows. That holds
within a region, too: one may be many records here and fewer there. So others tell where their
damage ends, and the next question begins at the first of those ends. Their damage is never stored.

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

    def region(self, position: int = 0) -> Region | None:
        """The first region with damage from there on that others can have good bytes of."""
        for one in self.store.damaged_regions:
            if position < one.end and max(position, one.start) < self.confirmed:
                return one
        return None

    def is_damaged(self, position: int) -> bool:
        """Whether this is a place that others can mend."""
        region = self.region(position)
        return region is not None and region.start <= position


@dataclass(slots=True)
class _Question:
    """What is asked for from `at` on, and who is still to be asked.

    `next_at`: up to there all that answered have damage, too; at first, where the region ends.
    """

    at: int
    end: int
    others: deque[str]
    next_at: int


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
        self._at = 0  # in this round: what lies below has been asked for
        self._fruitless = False  # in this round: nobody could mend something
        self._silent: set[str] = set()  # in this round: who does not answer is asked no more
        self._told: dict[tuple[int, str], str] = {}

    def look(self) -> None:
        """Begin a round, if anything is damaged and none is under way."""
        log = None if self._busy or self._over or self._resting is not None else self._log()
        if log is not None and log.region() is not None:
            self._busy = True
            self._go_on()

    def stop(self) -> None:
        """Repair nothing more."""
        self._over = True
        if self._resting is not None:
            self._resting.cancel()

    # -- a round -----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Ask for what is damaged next; the round is over behind the last region."""
        log = None if self._over else self._log()
        region = None if log is None else log.region(self._at)
        if region is None:
            self._end(log)
            return
        self._tell_once(
            logging.WARNING,
            (region.start, ""),
            f"the log is damaged from {region.start} to {region.end} "
            f"({region.reason}): requesting it from other replicas",
        )
        self._at = max(self._at, region.start)
        others = deque(one for one in self._peers if one not in self._silent)
        self._ask(_Question(self._at, region.end, others, next_at=region.end))

    def _ask(self, question: _Question) -> None:
        if self._over or not question.others:
            self._nobody_helps(question)
            return
        member, at = question.others.popleft(), question.at

        def done(answer: FetchLogResponse | KourouError, body: Buffer) -> None:
            if self._over:
                return
            if self._repaired(question, member, answer, body):
                self._mended()
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

    def _nobody_helps(self, question: _Question) -> None:
        """The next one, in a turn of its own: there may be many, and nobody who could be asked."""
        if self._over:
            return
        self._fruitless = True
        self._at = question.next_at
        asyncio.get_running_loop().call_soon(self._go_on)

    def _end(self, log: Damaged | None) -> None:
        """Forget what is good by now, and rest if something is not."""
        self._busy, self._at = False, 0
        self._silent.clear()
        if log is not None:
            told = self._told.items()
            self._told = {key: text for key, text in told if log.is_damaged(key[0])}
        if self._fruitless and not self._over:
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(self._pause_s, self._rested)
        self._fruitless = False

    def _rested(self) -> None:
        self._resting = None
        self.look()

    # -- an answer ---------------------------------------------------------------------------------

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
            self._tell_once(
                logging.INFO,
                (at, member),
                f"{member} cannot repair the log at {at}: {answer}",
            )
            return False
        log = self._log()
        if log is None or answer.position != at or not len(body):
            return False
        if log.epochs.run_from(at).epoch != answer.data_epoch:
            return False
        if answer.damage:
            if answer.end > at:
                question.next_at = min(question.next_at, answer.end)
            self._tell_once(
                logging.INFO, (at, member), f"{member} is damaged at {at} as well: {answer.damage}"
            )
            return False
        try:
            end = log.store.repair(at, body)
        except StoreFaulted as error:
            self._over = True
            self._failed(error)
            return False
        except (Corrupt, Rejected, DiskFull) as error:
            self._tell_once(
                logging.INFO,
                (at, member),
                f"{member} cannot repair the log at {at}: {error}",
            )
            return False
        _log.warning("the log was repaired from %d to %d with data from %s", at, end, member)
        return True

    def _tell_once(self, level: int, key: tuple[int, str], text: str) -> None:
        """Each round has the same to say of the same place; it is said when it is news."""
        if self._told.get(key) != text:
            self._told[key] = text
            _log.log(level, "%s", text)
