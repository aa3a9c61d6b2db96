"""Good bytes of other members in the place of damaged ones.

Lives here: which damaged region is asked for, whom, the checks that an answer passes, and which
damage all members have. May not live here: finding damage and putting bytes back
(kourou.store.copies), shipping (kourou.replication.raft.leader), connections
(kourou.serving.peer_links).

Only confirmed bytes are taken, of the epoch that this member's log has there: members agree about
those, so what a majority has wins, and damage at a minority never spreads. A round asks for every
region before it rests, so what nobody can mend keeps nobody from mending what follows.

What a follower lacks and this member cannot read is *wanted*: others are asked for it with their
damage. If a majority, this member included, has damage there and nobody says that it has good
bytes, the leader ships it as damage. No promise is broken by that: it is confirmed, so nothing is
acknowledged for the copy, and a member that comes back with good bytes still mends all others.

State: soft; which regions are damaged is the store's to remember (its quarantine).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kourou.errors import Corrupt, DiskFull, KourouError, Rejected, StoreFaulted
from kourou.model.limits import FETCH_BYTES_MAX
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
        """The first damaged region from there on of which others can have good bytes."""
        regions = self.store.damaged_regions
        found = (one for one in regions if position <= one.start < self.confirmed)
        return next(found, None)

    def rest_of(self, position: int) -> Region | None:
        """The damage that others may have good bytes of from `position` on, within its region."""
        for one in self.store.damaged_regions:
            if one.start <= position < one.end and position < self.confirmed:
                return Region(position, min(one.end, position + FETCH_BYTES_MAX), one.reason)
        return None


@dataclass(slots=True)
class _Question:
    """One region, and what the others said; `lost_end`: all that answered have damage up to it."""

    region: Region
    others: deque[str]
    wanted: bool
    lost_end: int
    damaged: int = 1
    readable: bool = False


class Repairs:
    """Repairs one region at a time, one member after the other.

    `log` tells how the log stands, None while no store is open; `fetch` asks a member;
    `mended` is called behind each repair, and when damage is found to be everybody's; `failed` when
    the disk fails, which ends the process. All calls belong on the running loop.
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
        self._at = 0  # in this round: where the next region begins, at the earliest
        self._fruitless = False  # in this round: nobody could mend something
        self._silent: set[str] = set()  # in this round: who does not answer is asked no more
        self._wanted: set[int] = set()
        self._asked: set[int] = set()  # in this round: of those that are wanted
        self._lost: dict[int, int] = {}
        self._told: dict[tuple[int, str], str] = {}

    def look(self) -> None:
        """Begin a round, if anything is damaged and none is under way."""
        log = None if self._busy or self._over or self._resting is not None else self._log()
        if log is not None and log.region() is not None:
            self._busy = True
            self._go_on()

    def lost_end(self, position: int) -> int:
        """Up to where no member can read what is damaged here from `position` on.

        `position` itself if one may; then the others are asked, in this round or the next.
        """
        found = [end for start, end in self._lost.items() if start <= position < end]
        log = None if found else self._log()
        if log is not None and log.rest_of(position) is not None:
            self._wanted.add(position)
        return max(found, default=position)

    def stop(self) -> None:
        """Repair nothing more."""
        self._over = True
        if self._resting is not None:
            self._resting.cancel()

    # -- a round -----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Ask for what is wanted, then for the next region; the round is over behind the last."""
        log = None if self._over else self._log()
        question = None if log is None else self._question(log)
        if question is None:
            self._end(log)
            return
        region = question.region
        self._tell_once(
            logging.WARNING,
            (region.start, ""),
            f"the log is damaged from {region.start} to {region.end} ({region.reason}): "
            "asking other members",
        )
        self._ask(question)

    def _question(self, log: Damaged) -> _Question | None:
        others = deque(one for one in self._peers if one not in self._silent)
        for position in sorted(self._wanted - self._asked):
            self._asked.add(position)
            wanted = log.rest_of(position)
            if wanted is not None:
                return _Question(wanted, others, wanted=True, lost_end=wanted.end)
        region = log.region(self._at)
        if region is None:
            return None
        self._at = region.start
        return _Question(region, others, wanted=False, lost_end=region.end)

    def _ask(self, question: _Question) -> None:
        if self._over or not question.others:
            self._nobody_helps(question)
            return
        member, region = question.others.popleft(), question.region

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
            position=region.start,
            max_bytes=region.end - region.start,
            damaged=question.wanted,
        )
        self._fetch(member, request, done, TIMEOUT_MS)

    def _nobody_helps(self, question: _Question) -> None:
        """The next one, in a turn of its own: there may be many, and nobody who could be asked."""
        if self._over:
            return
        self._fruitless = True
        region, members = question.region, len(self._peers) + 1
        if not question.wanted:
            self._at = region.end
        elif question.damaged * 2 > members and not question.readable:
            self._wanted.discard(region.start)
            self._lost[region.start] = question.lost_end
            _log.warning(
                "no member can read the log from %d to %d: who lacks that gets it as damage",
                *(region.start, question.lost_end),
            )
            self._mended()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _end(self, log: Damaged | None) -> None:
        """Forget what is good by now, and rest if something is not."""
        self._busy, self._at = False, 0
        self._silent.clear()
        self._asked.clear()
        if log is not None:
            self._wanted = {at for at in self._wanted if log.rest_of(at) is not None}
            self._lost = {at: end for at, end in self._lost.items() if log.rest_of(at) is not None}
            told = self._told.items()
            self._told = {key: text for key, text in told if log.rest_of(key[0]) is not None}
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
        at = question.region.start
        if isinstance(answer, KourouError):
            if not isinstance(answer, Corrupt | Rejected):
                self._silent.add(member)
            self._tell_once(
                logging.INFO,
                (at, member),
                f"{member} does not help with the log at {at}: {answer}",
            )
            return False
        log = self._log()
        if log is None or answer.position != at or not len(body):
            return False
        if log.epochs.run_from(at).epoch != answer.data_epoch:
            return False
        if answer.damage:
            question.damaged += 1
            question.lost_end = min(question.lost_end, answer.end)
            return False
        question.readable = True
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
                f"{member} has nothing for the log at {at}: {error}",
            )
            return False
        _log.warning("the log is good again from %d to %d, by %s", at, end, member)
        return True

    def _tell_once(self, level: int, key: tuple[int, str], text: str) -> None:
        """Each round has the same to say of the same place; it is said when it is news."""
        if self._told.get(key) != text:
            self._told[key] = text
            _log.log(level, "%s", text)
