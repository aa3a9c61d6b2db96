"""Jobs that redeliver dead letters to their groups, with one outcome for each of them.

A job is done only if every selected dead letter was sent. If one of them could not be read or sent,
the job has failed, and its outcome contains the reason; a stopped job lists those that were not
sent. The dead letters stay in the log, so they can be sent again. `deal_with` moves the group's
mark, but only over consecutive dead letters from the mark on that were all sent.

While a job selects and sends, its gateway holds the locks of the group's dead-letter queues at
their brokers, as an ordered consumer does. The locks are acquired before the dead letters are
selected: an earlier selection might contain messages that another gateway has sent in the meantime.
So a second gateway's job for the group fails immediately and sends nothing. The locks of a gateway
that died expire after QUEUE_LOCK_MS. If a gateway was stopped for longer than that, its lock may
have expired, and two gateways may send the same dead letters: at most twice, and none is omitted.

State: soft. A job ends with its gateway; its sent messages stay sent, and the job is unknown
afterwards.

Unhandled dead letters: pages, causes and selections of them.

State: none; the mark is at the brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from itertools import count
from typing import Self

import msgspec

from kourou.client.admin.dead_letters import StoredDeadLetter
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Sql
from kourou.client.session.io_thread import background
from kourou.errors import KourouError, TopicNotFound, Unavailable
from kourou.model.limits import (
    QUEUE_LOCK_MS,
    REDRIVE_BYTES_MAX,
    REDRIVE_DEAD_LETTERS_MAX,
    REDRIVES_AT_ONCE_MAX,
    REDRIVES_KEPT_MAX,
)
from kourou.model.names import check_group, dlq_topic
from kourou.model.topic import MessageQueue
from kourou.model.units import NEVER_MS
from kourou_console.gateway import Gateway
from kourou_console.http.responses import Busy, HttpError
from kourou_console.leases.leases import wanted_of
from kourou_console.lists import Missing, why
from kourou_console.messages.pages import page_by_time

PAGE = 64
AT_ONCE = 16


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters; they match all given fields. Without fields: all of them."""

    #: As `causes` contains it.
    cause: str | None = None
    origin_topic: str | None = None
    tag: tuple[str, ...] = ()
    sql: str | None = None
    key: str | None = None
    #: By the time at which they became dead letters.
    from_ms: int | None = None
    until_ms: int | None = None

    def takes(self, dead_letter: StoredDeadLetter) -> bool:
        """Whether the dead letter is selected. Tag and SQL filters were applied by the broker."""
        message = dead_letter.message
        return (
            (self.cause is None or dead_letter.cause == self.cause)
            and (self.origin_topic is None or dead_letter.topic == self.origin_topic)
            and (self.key is None or self.key in message.keys)
            and (self.from_ms is None or message.store_timestamp >= self.from_ms)
            and (self.until_ms is None or message.store_timestamp <= self.until_ms)
        )

    @property
    def wanted(self) -> str | Sql:
        """The filter for brokers. Raises BadRequest."""
        return wanted_of(self.tag, self.sql)


@dataclass(slots=True)
class UnhandledDeadLetters:
    """The ranges of a group's dead-letter queues, from the mark to the end; may be empty."""

    group: str
    marks: dict[MessageQueue, int] = field(default_factory=dict)
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    #: Queues whose brokers did not reply, and why: they have neither mark nor end.
    silent: dict[MessageQueue, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of unhandled dead letters, without those of silent queues."""
        return sum(self.ends[queue] - mark for queue, mark in self.marks.items())

    @property
    def missing(self) -> list[Missing]:
        """The silent queues, for the response."""
        return [Missing(str(queue), said) for queue, said in sorted(self.silent.items())]

    def has(self, message: ReceivedMessage) -> bool:
        """Whether the message is an unhandled dead letter."""
        mark = self.marks.get(message.queue)
        return mark is not None and mark <= message.offset


async def unhandled_dead_letters(gateway: Gateway, group: str) -> UnhandledDeadLetters:
    """The group's unhandled dead letters. A silent broker affects only its own queues."""
    reading = gateway.admin.reading
    found = UnhandledDeadLetters(check_group(group))
    gate = asyncio.Semaphore(AT_ONCE)
    try:
        queues = await reading.queues(dlq_topic(group))
    except TopicNotFound:
        return found

    async def one(queue: MessageQueue) -> None:
        async with gate:
            try:
                low, high = await reading.bounds(queue)
                mark = await reading.committed(group, queue)
            except KourouError as error:
                found.silent[queue] = why(error)
                return
        found.marks[queue] = min(max(low, mark or 0), high)
        found.ends[queue] = high

    await asyncio.gather(*map(one, queues))
    return found


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Some dead letters, the oldest first, and the offsets of the next page, if any."""

    dead_letters: list[StoredDeadLetter]
    offsets: dict[MessageQueue, int] | None
    missing: list[Missing]
    #: Positions that were skipped.
    damaged: list[Missing]


async def dead_letters_from(
    gateway: Gateway,
    offsets: dict[MessageQueue, int],
    count: int,
    wanted: str | Sql = "*",
) -> DeadLetterPage:
    """The next dead letters from these offsets on."""
    page = await page_by_time(
        gateway.admin.reading, offsets, until_ms=NEVER_MS, count=count, wanted=wanted
    )
    dead_letters = [StoredDeadLetter(one) for one in page.messages]
    return DeadLetterPage(dead_letters, page.offsets, page.missing, page.damaged)


async def every_dead_letter(
    gateway: Gateway, found: UnhandledDeadLetters, wanted: str | Sql = "*"
) -> AsyncIterator[DeadLetterPage]:
    """All dead letters as of the creation of `found`, page by page; missing queues first."""
    if found.silent:
        yield DeadLetterPage([], found.marks, found.missing, [])
    offsets: dict[MessageQueue, int] | None = found.marks
    while offsets:
        page = await dead_letters_from(gateway, offsets, PAGE, wanted)
        kept = [
            one for one in page.dead_letters if one.message.offset < found.ends[one.message.queue]
        ]
        yield DeadLetterPage(kept, page.offsets, page.missing, page.damaged)
        offsets = page.offsets
        if offsets is not None and all(
            offset >= found.ends[queue] for queue, offset in offsets.items()
        ):
            return
        if page.missing:
            return


REFRESH_S = QUEUE_LOCK_MS / 3_000

_log = logging.getLogger("kourou.console")


class DeadLetterLocks:
    """The locks of a group's dead-letter queues, refreshed before brokers drop them.

    `async with DeadLetterLocks(gateway, group) as locks:`; call `locks.check()` before each use.
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
                "dead-letter-unlock-failed: the locks of dead letters of group %(group)s could not "
                "be released: %(error)s",
                {"group": self._group, "error": error},
            )


_log = logging.getLogger("kourou.console")


class JobState(StrEnum):
    """The state of a job; of ended jobs, only DONE means that everything was done."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class RedriveOutcome(StrEnum):
    """The outcome of one dead letter."""

    WAITING = "waiting"
    SENT = "sent"
    WOULD_SEND = "would_send"
    FAILED = "failed"
    NOT_SENT = "not_sent"
    NOT_FOUND = "not_found"


@dataclass(slots=True)
class RedriveResult:
    """One dead letter, by its offset ID, and its outcome."""

    id: str
    outcome: RedriveOutcome = RedriveOutcome.WAITING
    error: str | None = None


@dataclass(slots=True, eq=False)
class RedriveJob:
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
    results: list[RedriveResult] = field(default_factory=list)
    #: More dead letters were selected than one job may have.
    cut: bool = False
    task: asyncio.Task[None] | None = None

    def count(self, *outcomes: RedriveOutcome) -> int:
        """The number of dead letters with one of these outcomes."""
        return sum(one.outcome in outcomes for one in self.results)

    def takes(self, dead_letter: StoredDeadLetter) -> bool:
        """Whether the dead letter is selected."""
        if self.ids is not None and dead_letter.message.offset_message_id not in self.ids:
            return False
        return self.selection.takes(dead_letter)


class Redrives:
    """A component of the gateway: the jobs since its start."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._numbers = count(1)
        self.jobs: OrderedDict[str, RedriveJob] = OrderedDict()

    @property
    def in_use(self) -> bool:
        """Whether a job is running."""
        return any(one.state is JobState.RUNNING for one in self.jobs.values())

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
    ) -> RedriveJob:
        """Start a job. Raises Busy if too many run, HttpError if the group has one."""
        running = [one for one in self.jobs.values() if one.state is JobState.RUNNING]
        if len(running) >= REDRIVES_AT_ONCE_MAX:
            raise Busy(f"{REDRIVES_AT_ONCE_MAX} redelivery jobs are running already, the maximum")
        if any(one.group == group and not one.dry_run for one in running) and not dry_run:
            raise HttpError(
                HTTPStatus.CONFLICT,
                f"dead letters of {group} are being redelivered already",
                hint="two jobs at once would send some messages twice: wait for it, or stop it",
            )
        now_ms = self._gateway.clock.now_ms()
        job = RedriveJob(
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

    def job(self, number: str) -> RedriveJob:
        """One job. Raises HttpError (404)."""
        found = self.jobs.get(number)
        if found is None:
            raise HttpError(
                HTTPStatus.NOT_FOUND,
                f"redelivery job {number[:64]!r} not found",
                hint=(
                    "jobs are lost when their gateway restarts, and old ones are removed; sent "
                    "messages stay sent"
                ),
            )
        return found

    async def stop(self, job: RedriveJob) -> None:
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

    async def _run(self, job: RedriveJob) -> None:
        state = JobState.FAILED
        try:
            if job.dry_run:
                await self._selected(job, await unhandled_dead_letters(self._gateway, job.group))
                for result in job.results:
                    if result.outcome is RedriveOutcome.WAITING:
                        result.outcome = RedriveOutcome.WOULD_SEND
            else:
                async with DeadLetterLocks(self._gateway, job.group) as locks:
                    found = await unhandled_dead_letters(self._gateway, job.group)
                    dead_letters = await self._selected(job, found)
                    await self._send(job, dead_letters, found, locks)
            if (
                not job.cut
                and not job.error
                and not job.count(RedriveOutcome.FAILED, RedriveOutcome.NOT_FOUND)
            ):
                state = JobState.DONE
        except asyncio.CancelledError:
            state = JobState.STOPPED  # by `stop`, which waits for this task
        except KourouError as error:
            job.error = str(error)
        finally:
            for result in job.results:
                if result.outcome is RedriveOutcome.WAITING:
                    result.outcome = RedriveOutcome.NOT_SENT
            job.state = state
            job.ended_ms = self._gateway.clock.now_ms()
            _log.info(
                "redelivery-ended: redelivery %(job)s of group %(group)s: %(state)s, %(sent)d of "
                "%(dead_letters)d dead letters sent",
                {
                    "job": job.id,
                    "group": job.group,
                    "state": state.value,
                    "sent": job.count(RedriveOutcome.SENT),
                    "dead_letters": len(job.results),
                },
            )

    async def _selected(
        self, job: RedriveJob, found: UnhandledDeadLetters
    ) -> list[StoredDeadLetter]:
        dead_letters: list[StoredDeadLetter] = []
        size_bytes = 0
        async for page in every_dead_letter(self._gateway, found, job.selection.wanted):
            for lost in page.missing + page.damaged:
                job.error = f"{lost.what} cannot be read: {lost.why}"
            for dead_letter in page.dead_letters:
                if not job.takes(dead_letter):
                    continue
                selected = len(job.results)
                if selected >= REDRIVE_DEAD_LETTERS_MAX or size_bytes >= REDRIVE_BYTES_MAX:
                    job.cut = True
                    job.error = (
                        f"more than {selected} dead letters are selected, the maximum of one job: "
                        "start another job for the rest"
                    )
                    return dead_letters
                size_bytes += dead_letter.message.size
                if not job.dry_run:
                    dead_letters.append(StoredDeadLetter(dead_letter.message.alone()))
                job.results.append(RedriveResult(dead_letter.message.offset_message_id))
        if job.ids is not None:
            there = {result.id for result in job.results}
            job.results += [
                RedriveResult(
                    one, RedriveOutcome.NOT_FOUND, "no such dead letter, or the filter excludes it"
                )
                for one in sorted(job.ids - there)
            ]
        return dead_letters

    async def _send(
        self,
        job: RedriveJob,
        dead_letters: list[StoredDeadLetter],
        found: UnhandledDeadLetters,
        locks: DeadLetterLocks,
    ) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        marks = _Marks(found)
        try:
            for dead_letter, result in zip(dead_letters, job.results, strict=False):
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                locks.check()
                due_s = max(due_s, loop.time() - 1) + 1 / job.rate_per_s
                # Shielded: cancelling a send would make its outcome unknown.
                sending = asyncio.ensure_future(self._send_one(job, dead_letter, result))
                try:
                    await asyncio.shield(sending)
                except asyncio.CancelledError:
                    await asyncio.wait([sending])
                    raise
                finally:
                    if result.outcome is RedriveOutcome.SENT:
                        marks.sent(dead_letter)
        finally:
            if job.deal_with and marks.moved:
                await self._gateway.admin.dead_letters.deal_with(job.group, marks.moved.values())

    async def _send_one(
        self, job: RedriveJob, dead_letter: StoredDeadLetter, result: RedriveResult
    ) -> None:
        try:
            found = await self._gateway.admin.dead_letters.resend(job.group, [dead_letter])
        except KourouError as error:
            failure: KourouError | None = error
        else:
            failure = found[dead_letter.message.message_id]
        result.outcome = RedriveOutcome.SENT if failure is None else RedriveOutcome.FAILED
        result.error = None if failure is None else str(failure)


class _Marks:
    """How far each queue's dead letters were sent consecutively from its mark on."""

    def __init__(self, found: UnhandledDeadLetters) -> None:
        self._next = dict(found.marks)
        #: The last dead letter of each consecutive range.
        self.moved: dict[MessageQueue, StoredDeadLetter] = {}

    def sent(self, dead_letter: StoredDeadLetter) -> None:
        """Note a sent dead letter; those of one queue must come in their order."""
        queue = dead_letter.message.queue
        if dead_letter.message.offset == self._next.get(queue):
            self._next[queue] += 1
            self.moved[queue] = dead_letter
