"""Dead letters: lists and causes, redelivery of a selection, export, discarding.

To discard, a dead letter is identified by its offset ID, which is that of one position. If a
message was redelivered and dead-lettered again, two dead letters have the same producer's ID, and
only one of them may be meant.

State: none. The position up to which dead letters are handled is a mark in each dead-letter queue
(the group's own offset there); the messages stay until the log is deleted.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated

import msgspec
from aiohttp import web

from kourou.client.admin.dead_letters import StoredDeadLetter
from kourou.client.admin.messages import MessageNotFound
from kourou.errors import BadRequest, GroupNotFound, KourouError, TopicNotFound, Unavailable
from kourou.model.limits import (
    CONSOLE_DISCARDS_MAX,
    DEAD_LETTERS_READ_MAX,
    MESSAGES_PER_PAGE_MAX,
    OUTCOMES_PER_PAGE_MAX,
    REDRIVE_DEAD_LETTERS_MAX,
    REDRIVE_RATE_MAX,
)
from kourou.model.names import DLQ_PREFIX, check_group, dlq_topic
from kourou.model.topic import MessageQueue
from kourou_console.api.groups import GroupPath, all_groups
from kourou_console.dead_letters import (
    RedriveJob,
    RedriveOutcome,
    RedriveResult,
    Redrives,
    Selection,
    UnhandledDeadLetters,
    dead_letters_from,
    every_dead_letter,
    unhandled_dead_letters,
)
from kourou_console.gateway import Gateway
from kourou_console.http.responses import ALWAYS, HttpError, disposition
from kourou_console.leases.leases import wanted_of
from kourou_console.lists import Done, Listing, Missing, Name, Preview, asked
from kourou_console.messages.pages import decode_cursor, encode_cursor
from kourou_console.messages.views import PREVIEW_BYTES, BodyMax, Budget, StoredMessageView, view_of
from kourou_console.operation import Chapter, NoParameters

OPERATIONS = Chapter("Dead letters")
DISCARD_OPERATIONS = Chapter("Dead letters")

AT_ONCE = 16

_encode = msgspec.json.Encoder().encode


class OfGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group whose dead letters are listed."""

    group: Name
    count: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_PER_PAGE_MAX)] = 50
    cursor: str | None = None
    body_max: BodyMax = PREVIEW_BYTES


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter. `attempts` is the number of deliveries to the group, if known."""

    id: str
    cause: str
    reason: str | None
    origin_topic: str | None
    attempts: int
    died_ms: int
    message: StoredMessageView


class CauseView(msgspec.Struct, frozen=True, kw_only=True):
    """Letters of one cause: numbers and ids in their reasons are `#`. "" has no reason."""

    cause: str
    origin_topic: str | None
    count: int
    first_ms: int
    last_ms: int
    #: The reason of the newest dead letter, and its ID.
    reason: str | None
    example: str


class DeadLetterList(msgspec.Struct, frozen=True, kw_only=True):
    """Unhandled dead letters, oldest first.

    `causes_truncated`: there are more than were read. `total` excludes the queues in `missing`.
    """

    items: list[DeadLetterView]
    causes: list[CauseView]
    causes_truncated: bool
    total: int
    truncated: bool
    cursor: str | None
    as_of_ms: int
    missing: list[Missing] = []


class GroupDeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """A group with a dead-letter topic; `waiting` is the number of unhandled dead letters.

    Queues that the list's `missing` names are not counted.
    """

    group: str
    waiting: int


class RedriveParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to redeliver, and how; they match both `ids` and `filter`."""

    group: Name
    ids: (
        Annotated[list[str], msgspec.Meta(min_length=1, max_length=REDRIVE_DEAD_LETTERS_MAX)] | None
    ) = None
    filter: Selection | None = None
    rate_per_s: Annotated[int, msgspec.Meta(ge=1, le=REDRIVE_RATE_MAX)] = 10
    #: Send nothing, only report what would be sent.
    dry_run: bool = False
    #: Move the group's mark over sent dead letters, as far as they are consecutive.
    deal_with: bool = False


class OneJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and which of its outcomes to return."""

    id: Name
    begin: Annotated[int, msgspec.Meta(ge=0, le=REDRIVE_DEAD_LETTERS_MAX)] = msgspec.field(
        name="from", default=0
    )
    count: Annotated[int, msgspec.Meta(ge=0, le=OUTCOMES_PER_PAGE_MAX)] = 100


class JobName(msgspec.Struct, frozen=True):
    """A job."""

    id: Name


class OutcomeView(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a dead letter: waiting, sent, would_send, failed, not_sent, not_found."""

    id: str
    state: str
    error: str | None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `state` is running, done (every selected letter was sent), failed, or stopped."""

    id: str
    group: str
    state: str
    dry_run: bool
    deal_with: bool
    selected: int
    sent: int
    failed: int
    #: Selected dead letters that are not sent (yet).
    left: int
    started_ms: int
    ended_ms: int | None
    error: str | None
    outcomes: list[OutcomeView]
    outcomes_total: int
    truncated: bool
    as_of_ms: int


@OPERATIONS.get("/v1/dead-letters", "list_dead_letters", needs=())
async def list_dead_letters(gateway: Gateway, parameters: OfGroup) -> DeadLetterList:
    """The unhandled dead letters of a group, oldest first, with counts by cause."""
    found = await unhandled_dead_letters(gateway, parameters.group)
    missing: list[Missing] = []
    # Cursors include silent queues, so that their dead letters are listed when their brokers reply.
    offsets = found.marks | dict.fromkeys(found.silent, 0)
    if parameters.cursor is not None and offsets:
        position = decode_cursor(parameters.cursor, list(offsets))
        if position.offsets is None:
            raise BadRequest("the cursor is of other queues", hint="start without a cursor")
        offsets = {queue: max(offsets[queue], at) for queue, at in position.offsets.items()}
    causes: dict[tuple[str, str | None], CauseView] = {}
    read = 0
    async for page in every_dead_letter(gateway, found):
        missing += page.missing + page.damaged
        for dead_letter in page.dead_letters:
            _count(causes, dead_letter)
        read += len(page.dead_letters)
        if read >= DEAD_LETTERS_READ_MAX:
            break
    cursor = None
    dead_letters: list[StoredDeadLetter] = []
    if found.marks:
        asking = {queue: offsets[queue] for queue in found.marks}
        shown = await dead_letters_from(gateway, asking, parameters.count)
        dead_letters = shown.dead_letters
        if shown.offsets is not None:
            cursor = encode_cursor(offsets | shown.offsets, gateway.clock.now_ms())
    budget = Budget()
    return DeadLetterList(
        items=[
            _view(one, await view_of(one.message, budget, parameters.body_max))
            for one in dead_letters
        ],
        causes=sorted(causes.values(), key=lambda one: (-one.count, one.cause)),
        causes_truncated=read < found.total,
        total=found.total,
        truncated=cursor is not None,
        cursor=cursor,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


def _count(causes: dict[tuple[str, str | None], CauseView], dead_letter: StoredDeadLetter) -> None:
    at_ms = dead_letter.message.store_timestamp
    key = (dead_letter.cause, dead_letter.topic)
    former = causes.get(key)
    causes[key] = CauseView(
        cause=dead_letter.cause,
        origin_topic=dead_letter.topic,
        count=1 if former is None else former.count + 1,
        first_ms=at_ms if former is None else min(former.first_ms, at_ms),
        last_ms=at_ms if former is None else max(former.last_ms, at_ms),
        reason=dead_letter.reason,
        example=dead_letter.message.offset_message_id,
    )


def _view(dead_letter: StoredDeadLetter, message: StoredMessageView) -> DeadLetterView:
    return DeadLetterView(
        id=dead_letter.message.offset_message_id,
        cause=dead_letter.cause,
        reason=dead_letter.reason,
        origin_topic=dead_letter.topic,
        attempts=dead_letter.attempts,
        died_ms=dead_letter.message.store_timestamp,
        message=message,
    )


@OPERATIONS.get("/v1/dead-letters/groups", "list_dead_letter_groups")
async def list_dead_letter_groups(
    gateway: Gateway, parameters: NoParameters
) -> Listing[GroupDeadLetters]:
    """Groups with dead letters, and their number."""
    topics = await gateway.admin.topics.list()
    groups = [one.removeprefix(DLQ_PREFIX) for one in topics if one.startswith(DLQ_PREFIX)]

    async def of(group: str) -> UnhandledDeadLetters:
        return await unhandled_dead_letters(gateway, group)

    found, missing = await asked(groups, of)
    missing += [one for those in found.values() for one in those.missing]
    items = [GroupDeadLetters(group=group, waiting=those.total) for group, those in found.items()]
    items.sort(key=lambda one: (-one.waiting, one.group))
    return Listing(items=items, total=len(groups), as_of_ms=gateway.clock.now_ms(), missing=missing)


@OPERATIONS.get(
    "/v1/dead-letters/export", "export_dead_letters", needs=(), media_type="application/x-ndjson"
)
async def export_dead_letters(
    gateway: Gateway, parameters: GroupPath, request: web.BaseRequest
) -> web.StreamResponse:
    """All unhandled dead letters of a group with bodies, as JSON lines. The last line has `end`:
    true and the total; if it is missing, the export is incomplete.
    """
    found = await unhandled_dead_letters(gateway, parameters.group)
    name = f"dead-letters-{parameters.group}.jsonl"
    headers = {
        **ALWAYS,
        "Content-Type": "application/x-ndjson",
        "Content-Disposition": disposition(name),
    }
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    count = 0
    error: str | None = None
    try:
        async for page in every_dead_letter(gateway, found):
            for dead_letter in page.dead_letters:
                message = await view_of(dead_letter.message, Budget(), whole=True)
                await response.write(_encode(_view(dead_letter, message)) + b"\n")
                count += 1
            for lost in page.missing + page.damaged:
                error = f"{lost.what}: {lost.why}"
    except KourouError as failure:
        error = str(failure)
    end = {"end": error is None, "count": count, "error": error}
    await response.write(_encode(end) + b"\n")
    await response.write_eof()
    return response


@OPERATIONS.post("/v1/dead-letters/redrives", "begin_redrive", needs=(), status=202)
async def begin_redrive(gateway: Gateway, parameters: NoParameters, body: RedriveParams) -> JobView:
    """Redeliver selected dead letters to their group at a given rate; only that group receives
    them. With `dry_run` nothing is sent. The response is a job: poll it until it has ended. Its
    state is `done` only if every message was sent. An unknown group is 404.
    """
    selection = body.filter or Selection()
    wanted_of(selection.tag, selection.sql)  # reject an invalid filter before anything starts
    await _check_there(gateway, check_group(body.group))
    job = gateway.part(Redrives).begin(
        check_group(body.group),
        None if body.ids is None else frozenset(body.ids),
        selection,
        rate_per_s=body.rate_per_s,
        dry_run=body.dry_run,
        deal_with=body.deal_with and not body.dry_run,
    )
    return _job(gateway, job, 0, 0)


async def _check_there(gateway: Gateway, group: str) -> None:
    """Raises GroupNotFound if no broker has the group and it has no dead letters."""
    try:
        await gateway.admin.reading.queues(dlq_topic(group))
    except TopicNotFound:
        known, unasked = await all_groups(gateway)
        if not unasked and not any(group in every for every in known.values()):
            raise GroupNotFound(f"group {group!r} not found") from None


@OPERATIONS.get("/v1/dead-letters/redrives", "list_redrives", needs=())
async def list_redrives(gateway: Gateway, parameters: NoParameters) -> Listing[JobView]:
    """Recent redelivery jobs of this gateway, newest first, without results."""
    jobs = list(gateway.part(Redrives).jobs.values())[::-1]
    items = [_job(gateway, one, 0, 0) for one in jobs]
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms())


@OPERATIONS.get("/v1/dead-letters/redrives/{id}", "get_redrive", needs=())
async def get_redrive(gateway: Gateway, parameters: OneJob) -> JobView:
    """A redelivery job with the result of each message, from a given number."""
    job = gateway.part(Redrives).job(parameters.id)
    return _job(gateway, job, parameters.begin, parameters.count)


@OPERATIONS.delete("/v1/dead-letters/redrives/{id}", "stop_redrive", needs=())
async def stop_redrive(gateway: Gateway, parameters: JobName) -> JobView:
    """Stop a redelivery job: messages already sent stay sent, the rest remain dead letters. An
    ended job does not change.
    """
    redrives = gateway.part(Redrives)
    job = redrives.job(parameters.id)
    await redrives.stop(job)
    return _job(gateway, job, 0, 0)


def _job(gateway: Gateway, job: RedriveJob, begin: int, count: int) -> JobView:
    shown = job.results[begin : begin + count]
    return JobView(
        id=job.id,
        group=job.group,
        state=job.state.value,
        dry_run=job.dry_run,
        deal_with=job.deal_with,
        selected=len(job.results) - job.count(RedriveOutcome.NOT_FOUND),
        sent=job.count(RedriveOutcome.SENT),
        failed=job.count(RedriveOutcome.FAILED, RedriveOutcome.NOT_FOUND),
        left=job.count(RedriveOutcome.WAITING, RedriveOutcome.NOT_SENT),
        started_ms=job.started_ms,
        ended_ms=job.ended_ms,
        error=job.error,
        outcomes=[_outcome(one) for one in shown],
        outcomes_total=len(job.results),
        truncated=begin + count < len(job.results),
        as_of_ms=gateway.clock.now_ms(),
    )


def _outcome(one: RedriveResult) -> OutcomeView:
    return OutcomeView(id=one.id, state=one.outcome.value, error=one.error)


class DiscardBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Those of a group with these ids, as the list has them, and all before them in their queues;
    without ids the oldest thousand.
    """

    group: Name
    ids: Annotated[list[Name], msgspec.Meta(max_length=CONSOLE_DISCARDS_MAX)] = []


class Mark(msgspec.Struct, frozen=True):
    """A dead-letter queue and the offset from which on its dead letters are unhandled."""

    broker: str
    queue: int
    offset: int


class DiscardResult(Done, frozen=True, kw_only=True):
    """The number of discarded dead letters, and the marks."""

    group: str
    dead_letters: int = msgspec.field(name="letters")
    marks: list[Mark]


@DISCARD_OPERATIONS.post("/v1/dead-letters/discards", "discard_dead_letters", needs=())
async def discard(gateway: Gateway, parameters: Preview, body: DiscardBody) -> DiscardResult:
    """Discard dead letters: they are no longer listed, and stay in the log until it expires."""
    found = await unhandled_dead_letters(gateway, body.group)
    ids = set(body.ids)
    chosen = _Chosen()
    if ids:
        await _named(gateway, found, ids, chosen)
    else:
        await _oldest(gateway, found, chosen)
    last = chosen.last
    gone = sum(one.message.offset + 1 - found.marks[queue] for queue, one in last.items())
    if not parameters.preview and last:
        await gateway.admin.dead_letters.deal_with(body.group, last.values())
    will = "would be" if parameters.preview else "are"
    says = [f"{gone:,} dead letters of {body.group} {will} discarded."]
    if ids and gone > len(ids):
        says.append(f"{gone - len(ids):,} of them are older than the selected ones.")
    says.append("They stay in the log until it expires.")
    return DiscardResult(
        group=body.group,
        preview=parameters.preview,
        says=says,
        dead_letters=gone,
        marks=[
            Mark(queue.broker_name, queue.queue_id, one.message.offset + 1)
            for queue, one in sorted(last.items())
        ],
        as_of_ms=gateway.clock.now_ms(),
        missing=chosen.missing,
    )


class _Chosen:
    """The last selected dead letter of each queue, which is sufficient for the marks."""

    def __init__(self) -> None:
        self.last: dict[MessageQueue, StoredDeadLetter] = {}
        self.missing: list[Missing] = []

    def take(self, dead_letter: StoredDeadLetter) -> None:
        """Select a dead letter."""
        queue = dead_letter.message.queue
        former = self.last.get(queue)
        if former is None or former.message.offset < dead_letter.message.offset:
            self.last[queue] = dead_letter


async def _oldest(gateway: Gateway, found: UnhandledDeadLetters, chosen: _Chosen) -> None:
    count = 0
    async for page in every_dead_letter(gateway, found):
        chosen.missing += page.missing + page.damaged
        for dead_letter in page.dead_letters[: CONSOLE_DISCARDS_MAX - count]:
            chosen.take(dead_letter)
        count += len(page.dead_letters)
        if count >= CONSOLE_DISCARDS_MAX:
            return


async def _named(
    gateway: Gateway, found: UnhandledDeadLetters, ids: set[str], chosen: _Chosen
) -> None:
    """Select the dead letters with these offset IDs, by requesting each from its broker."""
    gate = asyncio.Semaphore(AT_ONCE)
    unknown: list[str] = []

    async def one(dead_letter_id: str) -> None:
        async with gate:
            try:
                message = await gateway.admin.messages.by_offset_id(dead_letter_id)
            except (BadRequest, MessageNotFound):
                unknown.append(dead_letter_id)
                return
        if message.queue in found.silent:
            raise Unavailable(f"{message.queue!s}: {found.silent[message.queue]}")
        if found.has(message):
            chosen.take(StoredDeadLetter(message))
        else:
            unknown.append(dead_letter_id)

    await asyncio.gather(*map(one, ids))
    if unknown:
        raise HttpError(
            HTTPStatus.NOT_FOUND,
            f"{found.group} has no dead letter {min(unknown)!r} listed",
            hint="use the `id` of a listed dead letter; discarded ones are not listed",
        )
