"""Jobs that redeliver dead letters to their groups, with one outcome for each of them.

A job is done only if every selected dead letter was sent. If one of them could not be read or sent,
the job has failed, and its outcome contains the reason; a stopped job lists those that were not
sent. The dead letters stay in the log, so they can be sent again. `deal_with` moves the group's
mark, but only over consecutive dead letters from the mark on that were all sent.

While a job selects and sends, its gateway holds the locks of the group's dead-letter queues at
their brokers, as an ordered consumer does (kourou_console.letter_locks). So a second gateway's job
for the group fails immediately and sends nothing. The locks of a gateway that died expire after
QUEUE_LOCK_MS. If a gateway was stopped for longer than that, its lock may have expired, and two
gateways may send the same dead letters: at most twice, and none is omitted.

State: soft. A job ends with its gateway; its sent messages stay sent, and the job is unknown
afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from itertools import count

from kourou.client.admin.dead_letters import StoredDeadLetter
from kourou.client.session.background import background
from kourou.errors import KourouError
from kourou.model.limits import (
    REDRIVE_BYTES_MAX,
    REDRIVE_DEAD_LETTERS_MAX,
    REDRIVES_AT_ONCE_MAX,
    REDRIVES_KEPT_MAX,
)
from kourou.model.queue import MessageQueue
from kourou_console.gateway import Gateway
from kourou_console.letter_locks import DeadLetterLocks
from kourou_console.letters import Selection, Waiting, every_letter, waiting
from kourou_console.problems import Busy, Refused

_log = logging.getLogger("kourou.console")


class JobState(StrEnum):
    """The state of a job; of ended jobs, only DONE means that everything was done."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class Fate(StrEnum):
    """The outcome of one dead letter."""

    WAITING = "waiting"
    SENT = "sent"
    WOULD_SEND = "would_send"
    FAILED = "failed"
    NOT_SENT = "not_sent"
    NOT_FOUND = "not_found"


@dataclass(slots=True)
class Outcome:
    """One dead letter, by its offset ID, and its outcome."""

    id: str
    fate: Fate = Fate.WAITING
    error: str | None = None


@dataclass(slots=True, eq=False)
class Job:
    """One redelivery job."""

    id: str
    group: str
    ids: frozenset[str] | None
    selection: Selection
    rate_per_s: int
    dry_run: bool
    deal_with: bool
    started_ms: int
    state: JobState = JobState.RUNNING
    ended_ms: int | None = None
    error: str | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    #: More dead letters were selected than one job may have.
    cut: bool = False
    task: asyncio.Task[None] | None = None

    def count(self, *fates: Fate) -> int:
        """The number of dead letters with one of these outcomes."""
        return sum(one.fate in fates for one in self.outcomes)

    def takes(self, letter: StoredDeadLetter) -> bool:
        """Whether the dead letter is selected."""
        if self.ids is not None and letter.message.offset_message_id not in self.ids:
            return False
        return self.selection.takes(letter)


class Redrives:
    """A component of the gateway: the jobs since its start."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._numbers = count(1)
        self.jobs: OrderedDict[str, Job] = OrderedDict()

    async def close(self) -> None:
        """Stop the running jobs."""
        for job in list(self.jobs.values()):
            await self.stop(job)

    def begin(
        self,
        group: str,
        ids: frozenset[str] | None,
        selection: Selection,
        *,
        rate_per_s: int,
        dry_run: bool,
        deal_with: bool,
    ) -> Job:
        """Start a job. Raises Busy if too many run, Refused if the group has one already."""
        running = [one for one in self.jobs.values() if one.state is JobState.RUNNING]
        if len(running) >= REDRIVES_AT_ONCE_MAX:
            raise Busy(f"{REDRIVES_AT_ONCE_MAX} redelivery jobs are running already, the maximum")
        if any(one.group == group and not one.dry_run for one in running) and not dry_run:
            raise Refused(
                HTTPStatus.CONFLICT,
                f"dead letters of {group} are being redelivered already",
                hint="two jobs at once would send some messages twice: wait for it, or stop it",
            )
        now_ms = self._gateway.clock.now_ms()
        job = Job(
            f"{now_ms:x}-{next(self._numbers)}",
            group,
            ids,
            selection,
            rate_per_s,
            dry_run,
            deal_with,
            now_ms,
        )
        self.jobs[job.id] = job
        while len(self.jobs) > REDRIVES_KEPT_MAX:
            ended = next(one for one in self.jobs.values() if one.state is not JobState.RUNNING)
            del self.jobs[ended.id]
        job.task = background(self._run(job), f"sending dead letters of {group}")
        return job

    def job(self, number: str) -> Job:
        """One job. Raises Refused (404)."""
        found = self.jobs.get(number)
        if found is None:
            raise Refused(
                HTTPStatus.NOT_FOUND,
                f"redelivery job {number[:64]!r} not found",
                hint=(
                    "jobs are lost when their gateway restarts, and old ones are removed; sent "
                    "messages stay sent"
                ),
            )
        return found

    async def stop(self, job: Job) -> None:
        """Stop sending, and wait for the send in progress.

        Calling it again while it waits does not cancel that wait.
        """
        if job.state is not JobState.RUNNING or job.task is None:
            return
        if not job.task.cancelling():
            job.task.cancel()
        await asyncio.wait([job.task])
        if job.state is JobState.RUNNING:  # cancelled before its first step
            job.state, job.ended_ms = JobState.STOPPED, self._gateway.clock.now_ms()

    # -- running ----------------------------------------------------------------------------------

    async def _run(self, job: Job) -> None:
        state = JobState.FAILED
        try:
            if job.dry_run:
                await self._selected(job, await waiting(self._gateway, job.group))
                for outcome in job.outcomes:
                    if outcome.fate is Fate.WAITING:
                        outcome.fate = Fate.WOULD_SEND
            else:
                async with DeadLetterLocks(self._gateway, job.group) as locks:
                    found = await waiting(self._gateway, job.group)
                    letters = await self._selected(job, found)
                    await self._send(job, letters, found, locks)
            if not job.cut and not job.error and not job.count(Fate.FAILED, Fate.NOT_FOUND):
                state = JobState.DONE
        except asyncio.CancelledError:
            state = JobState.STOPPED  # by `stop`, which waits for this task
        except KourouError as error:
            job.error = str(error)
        finally:
            for outcome in job.outcomes:
                if outcome.fate is Fate.WAITING:
                    outcome.fate = Fate.NOT_SENT
            job.state = state
            job.ended_ms = self._gateway.clock.now_ms()
            _log.info(
                "redelivery %s of group %s: %s, %d of %d dead letters sent",
                job.id,
                job.group,
                state.value,
                job.count(Fate.SENT),
                len(job.outcomes),
            )

    async def _selected(self, job: Job, found: Waiting) -> list[StoredDeadLetter]:
        letters: list[StoredDeadLetter] = []
        size_bytes = 0
        async for page in every_letter(self._gateway, found, job.selection.wanted):
            for lost in page.missing + page.damaged:
                job.error = f"{lost.what} cannot be read: {lost.why}"
            for letter in page.letters:
                if not job.takes(letter):
                    continue
                selected = len(job.outcomes)
                if selected >= REDRIVE_DEAD_LETTERS_MAX or size_bytes >= REDRIVE_BYTES_MAX:
                    job.cut = True
                    job.error = (
                        f"more than {selected} dead letters are selected, the maximum of one job: "
                        "start another job for the rest"
                    )
                    return letters
                size_bytes += letter.message.size
                if not job.dry_run:
                    letters.append(StoredDeadLetter(letter.message.alone()))
                job.outcomes.append(Outcome(letter.message.offset_message_id))
        if job.ids is not None:
            there = {outcome.id for outcome in job.outcomes}
            job.outcomes += [
                Outcome(one, Fate.NOT_FOUND, "no such dead letter, or the filter excludes it")
                for one in sorted(job.ids - there)
            ]
        return letters

    async def _send(
        self, job: Job, letters: list[StoredDeadLetter], found: Waiting, locks: DeadLetterLocks
    ) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        marks = _Marks(found)
        try:
            for letter, outcome in zip(letters, job.outcomes, strict=False):
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                locks.check()
                due_s = max(due_s, loop.time() - 1) + 1 / job.rate_per_s
                # Shielded: cancelling a send would make its outcome unknown.
                sending = asyncio.ensure_future(self._send_one(job, letter, outcome))
                try:
                    await asyncio.shield(sending)
                except asyncio.CancelledError:
                    await asyncio.wait([sending])
                    raise
                finally:
                    if outcome.fate is Fate.SENT:
                        marks.sent(letter)
        finally:
            if job.deal_with and marks.moved:
                await self._gateway.admin.dead_letters.deal_with(job.group, marks.moved.values())

    async def _send_one(self, job: Job, letter: StoredDeadLetter, outcome: Outcome) -> None:
        try:
            found = await self._gateway.admin.dead_letters.resend(job.group, [letter])
        except KourouError as error:
            failure: KourouError | None = error
        else:
            failure = found[letter.message.message_id]
        outcome.fate = Fate.SENT if failure is None else Fate.FAILED
        outcome.error = None if failure is None else str(failure)


class _Marks:
    """How far each queue's dead letters were sent consecutively from its mark on."""

    def __init__(self, found: Waiting) -> None:
        self._next = dict(found.marks)
        #: The last dead letter of each consecutive range.
        self.moved: dict[MessageQueue, StoredDeadLetter] = {}

    def sent(self, letter: StoredDeadLetter) -> None:
        """Note a sent dead letter; those of one queue must come in their order."""
        queue = letter.message.queue
        if letter.message.offset == self._next.get(queue):
            self._next[queue] += 1
            self.moved[queue] = letter
